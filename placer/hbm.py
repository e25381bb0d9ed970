"""The HBM ledger: what every byte of one GPU's budget is for, under tensor parallelism."""

from dataclasses import dataclass

from placer.model.spec import ModelSpec
from placer.units import GIB

PAGE_TOKENS = 1
"""KV tokens per page of SGLang's default pool; the pool holds one page more than it promises."""


@dataclass(frozen=True)
class ServerSettings:
    """The serving settings that cost HBM: a point of the grid that `placer.level` searches.

    Attributes
    ----------
    max_running_requests
        Requests that run together (R); also the largest captured CUDA-graph batch.
    kv_tokens
        Capacity of the KV pool.
    chunk_tokens
        Prefill chunk (C).
    kv_dtype
        "bf16" or "fp8".
    """

    max_running_requests: int
    kv_tokens: int
    chunk_tokens: int
    kv_dtype: str


@dataclass(frozen=True)
class HbmLedger:
    """Bytes of one GPU by purpose; ``lines`` sum to ``budget_bytes`` exactly, ``unused`` included.

    ``unused`` may be negative in a ledger that does not fit.
    """

    budget_bytes: int
    lines: dict[str, int]

    @property
    def unused_bytes(self) -> int:
        """Bytes that no line claims."""
        return self.lines["unused"]

    @property
    def weights_bytes(self) -> int:
        """Bytes of everything loaded from the checkpoint."""
        return sum(self.lines.get(name, 0) for name in ("hot_experts", *WEIGHT_CLASSES))

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV pool and of per-request state."""
        return self.lines["kv_pool"] + self.lines["request_state"]


WEIGHT_CLASSES = ("attention", "router", "shared_experts", "dense", "embedding", "norms", "other")
"""Non-expert weight classes of `ModelSpec.weights_bytes_per_gpu` that a server without drafting loads."""

_PROCESS_GROUP_LOSS_GIB = {1: 0.0, 2: 1.0, 4: 1.6, 8: 2.0}
_DRIVER_LOSS_GIB = 0.6


def free_memory_loss_bytes(tp: int) -> int:
    """Device memory gone once the driver, the CUDA context and the process group are up.

    0.6 GiB plus 0, 1.0, 1.6 or 2.0 GiB at tp 1, 2, 4, 8: read off public server logs of H100 and H200
    (78.4-78.8 GiB free of 79.18 at tp 1, 76.98 at tp 4); sizes between take the next larger entry.
    """
    group = next((loss for size, loss in _PROCESS_GROUP_LOSS_GIB.items() if tp <= size), 2.0)
    return int((_DRIVER_LOSS_GIB + group) * GIB)


def activation_bytes(model: ModelSpec, chunk_tokens: int, tp: int) -> int:
    """Activations of one prefill chunk: C·k·(3·I/tp + H)·2 for the fused MoE, and 8·C·H·2 beside it.

    The buffers of SGLang's Triton fused MoE (gate and up, their product, and the down result), in bf16.
    """
    inner = -(-model.expert_intermediate_size // tp)
    moe = chunk_tokens * model.top_k * (3 * inner + model.hidden_size) * 2
    return moe + 8 * chunk_tokens * model.hidden_size * 2


def staging_bytes(model: ModelSpec, chunk_tokens: int) -> int:
    """kt-kernel's hidden-state staging buffer on rank 0: C·H·2 (sglang-kt, layers/moe/kt_ep_wrapper.py)."""
    return chunk_tokens * model.hidden_size * 2


def kv_pool_bytes(model: ModelSpec, settings: ServerSettings, tp: int) -> int:
    """The KV pool of one GPU: capacity plus one page, at the pool's own layout."""
    per_token = model.kv_bytes_per_token_per_gpu(tp, settings.kv_dtype)
    return (settings.kv_tokens + PAGE_TOKENS) * per_token


def expert_share_bytes(model: ModelSpec, tp: int) -> int:
    """What one hot expert takes from each GPU: every GPU holds 1/tp of every hot expert."""
    return -(-model.expert_bytes(model.expert_format["gpu"]) // tp)


_CUDA_GRAPHS_BYTES = GIB
_FRAGMENTATION_BYTES = GIB // 2
_RESERVE_FLOOR_BYTES = int(2.5 * GIB)


def hbm_ledger(
    model: ModelSpec, *, tp: int, budget_bytes: int, settings: ServerSettings, hot_experts: int
) -> HbmLedger:
    """Ledger of one GPU for a server with ``hot_experts`` resident experts (over all layers).

    The reserve beside weights and KV is max(2.5 GiB, 1.5·activations + 1.0 GiB CUDA graphs +
    0.5 GiB fragmentation) plus kt-kernel's staging buffer; ``fragmentation`` takes the rest of the floor.
    """
    weights = model.weights_bytes_per_gpu(tp)
    activations = activation_bytes(model, settings.chunk_tokens, tp) * 3 // 2
    fragmentation = max(_FRAGMENTATION_BYTES, _RESERVE_FLOOR_BYTES - activations - _CUDA_GRAPHS_BYTES)
    lines = {
        "hot_experts": hot_experts * expert_share_bytes(model, tp),
        **{name: weights[name] for name in WEIGHT_CLASSES},
        "kv_pool": kv_pool_bytes(model, settings, tp),
        "request_state": settings.max_running_requests
        * model.state_bytes_per_request_per_gpu(tp, settings.kv_dtype),
        "activations": activations,
        "cuda_graphs": _CUDA_GRAPHS_BYTES,
        "fragmentation": fragmentation,
        "runtime_staging": staging_bytes(model, settings.chunk_tokens),
        "free_memory_loss": free_memory_loss_bytes(tp),
    }
    lines["unused"] = budget_bytes - sum(lines.values())
    return HbmLedger(budget_bytes, lines)


def mem_fraction_static(ledger: HbmLedger, *, tp: int, device_bytes: int) -> float:
    """The ``--mem-fraction-static`` that lets SGLang start: (weights + KV) / free memory after start.

    Rounded up to three decimals. SGLang sizes its pool as fraction·free − weights
    (model_runner_kv_cache_mixin.py), so a smaller value refuses the plan's KV tokens.
    """
    free = device_bytes - free_memory_loss_bytes(tp)
    return -(-(ledger.weights_bytes + ledger.kv_bytes) * 1000 // free) / 1000
