"""Base time of a step: everything outside the routed experts, from what the GPU sustains."""

from placer.model.spec import ModelSpec
from placer.profiler.cost import GpuRates

_EXPERT_FREE_CLASSES = ("attention", "router", "shared_experts", "dense", "norms", "other")


def decode_base_us(
    model: ModelSpec, rates: GpuRates, *, tp: int, batch: int, context_tokens: int, kv_dtype: str
) -> float:
    """Microseconds of one decode step of ``batch`` requests outside the routed experts.

    Every layer's fixed kernels, the non-expert weights and the output head read once, and the KV of every
    request read once. Decoding is bound by bandwidth here, so arithmetic is left out.
    """
    weights_bytes = _step_weights_bytes(model, tp)
    kv_bytes = batch * (
        context_tokens * model.kv_bytes_per_token_per_gpu(tp, kv_dtype)
        + model.state_bytes_per_request_per_gpu(tp, kv_dtype)
    )
    reads_us = (weights_bytes + kv_bytes) / rates.bytes_per_s * 1e6
    return model.num_layers * rates.layer_call_us + reads_us


def prefill_base_us(
    model: ModelSpec, rates: GpuRates, *, tp: int, chunk_tokens: int, context_tokens: int, kv_dtype: str
) -> float:
    """Microseconds of one prefill chunk outside the routed experts.

    The larger of the weights' reads and 2 flops per non-expert parameter and token, plus the KV read of the
    context. The products of scores and values are left out: below a few thousand tokens of context they
    are small beside the projections.
    """
    parameters = model.parameters["total"] - model.parameters["routed"]
    reads_us = _step_weights_bytes(model, tp) / rates.bytes_per_s * 1e6
    arithmetic_us = 2 * parameters / tp * chunk_tokens / rates.bf16_flops * 1e6
    kv_us = context_tokens * model.kv_bytes_per_token_per_gpu(tp, kv_dtype) / rates.bytes_per_s * 1e6
    return model.num_layers * rates.layer_call_us + max(reads_us, arithmetic_us) + kv_us


def _step_weights_bytes(model: ModelSpec, tp: int) -> int:
    weights = model.weights_bytes_per_gpu(tp)
    # Of the embedding class a step reads the output head whole and one row of the input table per token.
    return sum(weights[name] for name in _EXPERT_FREE_CLASSES) + weights["embedding"] // 2
