"""The sections of a placement that say where the bytes go: hbm, host, kv, and the fraction that follows."""

from dataclasses import asdict
from typing import Any

from placer.hbm import ServerSettings, context_tokens, hbm_ledger, kv_plan, mem_fraction_static
from placer.host import HostLedger
from placer.kv_pool import KvPlan
from placer.model.spec import ModelSpec
from placer.parallelism import Parallelism
from placer.state_slots import state_pools, state_slots


def memory_sections(
    model: ModelSpec,
    *,
    settings: ServerSettings,
    tp: int,
    hot_experts: int,
    budget_bytes: int,
    device_bytes: int,
    host: HostLedger,
    loss_bytes: int | None = None,
) -> dict[str, Any]:
    """``hbm``, ``host``, ``kv`` and ``mem_fraction_static`` as plain JSON values.

    The ledger's lines stand beside the factors that they are products of, so that a reader can tell whether
    they were edited (`placer.contradiction`).
    """
    parallel = Parallelism(tp)
    ledger = hbm_ledger(
        model,
        parallel=parallel,
        budget_bytes=budget_bytes,
        settings=settings,
        hot_experts=hot_experts,
        loss_bytes=loss_bytes,
    )
    pool = kv_plan(model, settings, parallel)
    return {
        "hbm": {
            "budget_bytes_per_gpu": budget_bytes,
            "ledger": ledger.lines,
            "device_bytes": device_bytes,
            "expert_bytes": model.expert_bytes(model.expert_format["gpu"]),
        },
        "host": {"ledger": host.lines, "total_bytes": host.total_bytes},
        "kv": {
            "dtype": settings.kv_dtype,
            "bytes_per_token_per_gpu": _token_bytes(model, settings, tp, pool),
            "tokens": settings.kv_tokens,
            "max_running_requests": settings.max_running_requests,
            "chunked_prefill_size": settings.chunk_tokens,
            "cuda_graph_max_bs": settings.max_running_requests,
            "context_length": context_tokens(model, settings, parallel),
            **_pools(model, settings, tp, pool),
        },
        "mem_fraction_static": mem_fraction_static(
            ledger, device_bytes=device_bytes, claimed_bytes=pool.claimed_bytes
        ),
    }


def _token_bytes(model: ModelSpec, settings: ServerSettings, tp: int, pool: KvPlan) -> int:
    """Bytes of a cached token in the layers that keep every token; compressed entries count by the token."""
    first = pool.pools[0]
    return (
        first.slot_bytes if first.name == "full" else model.kv_bytes_per_token_per_gpu(tp, settings.kv_dtype)
    )


def _pools(model: ModelSpec, settings: ServerSettings, tp: int, pool: KvPlan) -> dict[str, Any]:
    """What the ``kv`` section says of the runtime's pools: the factors of the ledger's lines, and flags."""
    states = state_pools(
        model,
        running=settings.max_running_requests,
        attention_tp=tp,
        speculation=settings.speculation,
    )
    section: dict[str, Any] = {
        "page_tokens": pool.page_tokens,
        "max_total_tokens": pool.max_total_tokens,
        "claimed_bytes": pool.claimed_bytes,
        "pools": [asdict(each) for each in pool.pools],
    }
    if pool.window_ratio is not None:
        section["swa_full_tokens_ratio"] = pool.window_ratio
    if states:
        section["max_mamba_cache_size"] = state_slots(
            model, settings.max_running_requests, settings.speculation
        )
        section["states"] = [asdict(each) for each in states]
    if settings.speculation is not None:
        section["speculation"] = asdict(settings.speculation)
    return section
