"""Does a server with N hot experts per layer fit? Both ledgers, what to tell the runtimes, and the largest N."""

from dataclasses import asdict, replace
from typing import Any

from placer.demand import MemoryDemand
from placer.errors import BadInputError
from placer.hbm import REPACKING_NOTE, HbmLedger, kv_plan, mem_fraction_static, repacks
from placer.host import HostLedger, HostRoom
from placer.host_remedy import host_remedies, host_short, with_host_memory
from placer.kv_pool import KvPlan, check_kv_settings, vllm_kv_cache_memory_bytes
from placer.remedy import largest, remedies
from placer.runtime_reserve import sglang_default_fraction, sglang_profiled_tokens, sglang_reserve_bytes
from placer.state_slots import state_slots

PLAN_FLAGS = {
    "kv_tokens": "--kv-tokens",
    "kv_dtype": "--kv-dtype",
    "hot_per_layer": "--plan",
    "running": "--running",
    "chunk_tokens": "--chunk",
    "tp": "--tp",
    "ep": "--ep",
    "pp": "--pp",
    "budget_bytes": "--hbm-budget",
    "host_memory": "--host-memory",
}


def memory_plan_document(
    demand: MemoryDemand,
    *,
    device_bytes: int,
    cpu_method: str,
    numa_nodes: int,
    host_memory_bytes: int | None,
    split_problem: str | None = None,
    sglang_problem: str | None = None,
) -> dict[str, Any]:
    """The ``plan`` section of `placer inspect --plan`: bytes as integers, HBM lines per GPU.

    ``device_bytes`` is what a process can use of one GPU; the demand's budget may be less. ``split_problem`` is why no
    runtime splits the experts between GPU and CPU like this, ``sglang_problem`` why sglang-kt does not; None where one
    does.

    Raises
    ------
    BadInputError
        When the demand is impossible on any GPU: more experts than a layer has, sizes that do not divide,
        a chunk smaller than the decode batch, no MTP layer to draft with.
    """
    _check(demand)
    ledger, model = demand.ledger(), demand.model
    room = HostRoom(cpu_method, numa_nodes, host_memory_bytes)
    host = room.ledger(model, demand.chunk_tokens)
    most = largest(0, model.experts, lambda count: replace(demand, hot_per_layer=count).fits)
    free = device_bytes - ledger.lines["free_memory_loss"]
    pool = kv_plan(model, demand.settings, demand.parallel)
    fraction = (
        mem_fraction_static(ledger, device_bytes=device_bytes, claimed_bytes=pool.claimed_bytes)
        if free > 0
        else None
    )
    null_reasons = {}
    if fraction is None or fraction >= 1:
        fraction = None
        null_reasons["mem_fraction_static"] = "weights and KV exceed what is free after start"
    if most is None:
        null_reasons["largest_hot_per_layer"] = "nothing fits even without hot experts"
    if ledger.binding_line is None:
        null_reasons["binding_line"] = "every line fits"
    host_fits = None if host_memory_bytes is None else host.total_bytes <= host_memory_bytes
    if host_fits is None:
        null_reasons["host.fits"] = null_reasons["host.memory_bytes"] = "no --host-memory was given"
    if split_problem is None:
        null_reasons["split_problem"] = "a runtime is known that runs the experts like this"
    if sglang_problem is None:
        null_reasons["sglang_problem"] = "SGLang runs the experts like this"
    changes = (
        host_remedies(demand, room, PLAN_FLAGS)
        if demand.fits
        else with_host_memory(remedies(demand, PLAN_FLAGS), room, PLAN_FLAGS["host_memory"])
    )
    return {
        "fits": demand.fits and not host_short(demand, room),
        "split_problem": split_problem,
        "sglang_problem": sglang_problem,
        "hot_per_layer": demand.hot_per_layer,
        "hot_experts": demand.hot_experts,
        "largest_hot_per_layer": most,
        "binding_line": ledger.binding_line,
        "remedies": [
            {"kind": remedy.kind, "value": remedy.value, "advice": remedy.advice} for remedy in changes
        ],
        "parallelism": {**asdict(demand.parallel), "gpus": demand.parallel.gpus},
        "settings": {**asdict(demand.settings), **_kv_flags(demand, pool)},
        "hbm": {
            "budget_bytes_per_gpu": demand.budget_bytes,
            "device_bytes": device_bytes,
            "free_bytes_after_start": max(0, free),
            "weights_bytes": ledger.weights_bytes,
            "kv_bytes": ledger.kv_bytes,
            "left_bytes": free - ledger.weights_bytes - ledger.kv_bytes,
            "ledger": ledger.lines,
        },
        "mem_fraction_static": fraction,
        "reserve": _reserves(demand, ledger, device_bytes=device_bytes, free_bytes=max(0, free)),
        "host": _host_section(host, cpu_method, host_memory_bytes, host_fits),
        "notes": _notes(demand),
        "null_reasons": null_reasons,
    }


def _kv_flags(demand: MemoryDemand, pool: KvPlan) -> dict[str, Any]:
    """What SGLang must be told for the pool, per data-parallel group; None where it reads no such flag."""
    slots = state_slots(demand.model, -(-demand.running // demand.parallel.dp), demand.settings.speculation)
    return {
        "max_total_tokens": pool.max_total_tokens,
        "page_tokens": pool.page_tokens,
        "max_mamba_cache_size": slots or None,
    }


def _check(demand: MemoryDemand) -> None:
    if not 0 <= demand.hot_per_layer <= demand.model.experts:
        raise BadInputError(
            f"--plan is {demand.hot_per_layer} hot experts per layer",
            f"{demand.model.name} has {demand.model.experts} experts per layer: give 0 to {demand.model.experts}",
        )
    if demand.chunk_tokens < demand.running:
        raise BadInputError(
            f"--chunk {demand.chunk_tokens} is smaller than a decode step of {demand.running} running requests",
            "kt-kernel refuses that: raise --chunk or lower --running",
        )
    check_kv_settings(
        demand.model, chunk_tokens=demand.chunk_tokens, kv_dtype=demand.kv_dtype, flag="--chunk"
    )
    demand.parallel.check(demand.model)


def _reserves(
    demand: MemoryDemand, ledger: HbmLedger, *, device_bytes: int, free_bytes: int
) -> dict[str, Any]:
    """placer's own reserve beside what SGLang does by default and the flag that fixes vLLM's pool."""
    settings, parallel = demand.settings, demand.parallel
    reserve = sglang_reserve_bytes(
        device_bytes=device_bytes,
        chunk_tokens=settings.chunk_tokens,
        graph_batch=settings.max_running_requests,
        gpus=parallel.gpus,
        dp=parallel.dp,
        speculative=settings.speculative,
    )
    fraction = sglang_default_fraction(device_bytes, reserve)
    token_bytes = demand.model.kv_bytes_per_token_per_gpu(parallel.attention_tp, settings.kv_dtype)
    stage = max(map(len, parallel.stage_layers(demand.model.num_layers)))
    token_bytes = -(-token_bytes * stage // demand.model.num_layers)
    pool = kv_plan(demand.model, settings, parallel, stage)
    flag = sglang_profiled_tokens(
        fraction,
        free_bytes=free_bytes,
        weights_bytes=ledger.weights_bytes,
        state_bytes=ledger.lines["request_state"],
        token_bytes=-(-pool.claimed_bytes // pool.max_total_tokens),
    )
    # Where windowed layers keep a share of the tokens, more of them fit than the flag counts.
    tokens = flag * pool.tokens // pool.max_total_tokens
    return {
        "placer_bytes": ledger.reserve_bytes,
        "sglang": {
            "reserve_bytes": reserve,
            "mem_fraction_static": fraction,
            "kv_tokens": tokens * parallel.dp,
            "holds_the_plan": tokens * parallel.dp >= settings.kv_tokens,
        },
        "vllm": {
            "kv_cache_memory_bytes": vllm_kv_cache_memory_bytes(
                -(-settings.kv_tokens // parallel.dp), token_bytes
            )
        },
    }


def _host_section(
    host: HostLedger, cpu_method: str, memory_bytes: int | None, fits: bool | None
) -> dict[str, Any]:
    return {
        "cpu_method": cpu_method,
        "numa_nodes": host.numa_nodes,
        "ledger": host.lines,
        "total_bytes": host.total_bytes,
        "bytes_per_numa_node": host.node_bytes,
        "memory_bytes": memory_bytes,
        "fits": fits,
    }


def _notes(demand: MemoryDemand) -> list[str]:
    notes = []
    partial = demand.hot_per_layer < demand.model.experts
    if partial and demand.parallel.ep > 1:
        notes.append("sglang-kt cannot split hot and cold experts under expert parallelism")
    if partial and (demand.parallel.pp > 1 or demand.parallel.dp > 1):
        notes.append("that sglang-kt splits hot and cold experts with pp or dp has not been verified")
    if demand.parallel.pp > 1:
        notes.append("the ledger is that of the fullest pipeline stage")
    # Flags of a plan that does not fit are not told.
    if demand.fits and demand.model.state_bytes_per_request_per_gpu(
        demand.parallel.attention_tp, demand.kv_dtype
    ):
        notes.append(
            "vLLM sizes the pool of layers with a window or a state by its own rule: its flag here counts the "
            "layers that cache every token"
        )
    if repacks(demand.model):
        notes.append(REPACKING_NOTE)
    return notes
