"""Base time of a step: everything outside the routed experts, from what the GPU sustains."""

import math

from placer.model.spec import ModelSpec
from placer.model.weights import WeightGroup
from placer.profiler.attention_layers import attention_layers
from placer.profiler.cost import GpuRates
from placer.profiler.step_load import StepLoad

_EXPERT_FREE_CLASSES = ("attention", "router", "shared_experts", "dense", "norms", "other")


def step_base_us(model: ModelSpec, rates: GpuRates, load: StepLoad, *, tp: int, kv_dtype: str) -> float:
    """Microseconds of one step outside the routed experts: decode, prefill, or both at once.

    Every layer's fixed kernels, and its sums over GPUs by token; the larger of reading the non-expert weights
    once and of 2 operations per parameter and token; the KV and state of every decoding request, read once; the
    products of scores and values of the chunk's tokens with what they see, 2·heads·(key + value) each, which grow
    with the square of a prompt; and one read of the context that the chunk adds to.
    """
    arithmetic_us = _linear_flops(model, load, tp) / rates.bf16_flops * 1e6
    reads_us = step_weights_bytes(model, tp) / rates.bytes_per_s * 1e6
    kv_token_bytes = model.kv_bytes_per_token_per_gpu(tp, kv_dtype)
    kv_bytes = load.batch * (
        load.context_tokens * kv_token_bytes + model.state_bytes_per_request_per_gpu(tp, kv_dtype)
    )
    kv_bytes += min(1, load.chunk_tokens) * load.chunk_context_tokens * kv_token_bytes
    pairs_us = load.chunk_tokens * sum(
        layers.entries(load.chunk_context_tokens) * layers.pair_flops(tp)
        for layers in (attention_layers(model) if load.chunk_tokens else ())
    )
    return (
        model.num_layers * (rates.layer_call_us + rates.layer_token_us * load.tokens)
        + max(reads_us, arithmetic_us)
        + kv_bytes / rates.bytes_per_s * 1e6
        + pairs_us / rates.bf16_flops * 1e6
    )


def _linear_flops(model: ModelSpec, load: StepLoad, tp: int) -> float:
    """Two per parameter and token; the output head for the tokens that are sampled from, tables for none."""
    tables = [math.prod(g.shape) for g in vocabulary(model) for _ in range(g.count)]
    body = max(0, model.other_parameters - sum(tables))
    return 2 * (body * load.tokens + max(tables, default=0) * load.sampled_tokens) / tp


def vocabulary(model: ModelSpec) -> list[WeightGroup]:
    """The tables over the vocabulary: input embedding and output head, one group where they are alike."""
    return [group for group in model.weights if group.weight_class == "embedding" and len(group.shape) > 1]


def step_weights_bytes(model: ModelSpec, tp: int) -> int:
    """Non-expert weights that every step reads on one of ``tp`` GPUs.

    Of the tables a step reads the output head whole and a row of the input's per token, which is left out.
    """
    weights = model.weights_bytes_per_gpu(tp)
    head = max((g.bytes_per_gpu(tp, model.kv_heads) // g.count for g in vocabulary(model)), default=0)
    return sum(weights[name] for name in _EXPERT_FREE_CLASSES) + head
