"""Memory levels: the server settings worth trying, each with the HBM room it leaves for hot experts."""

from dataclasses import dataclass

from placer.demand import MemoryDemand
from placer.errors import BadInputError, InfeasibleError
from placer.hbm import HbmLedger, ServerSettings
from placer.host import HostRoom
from placer.host_remedy import host_short, with_host_memory
from placer.kv_pool import check_kv_settings, holds_kv_dtype, sglang_page_tokens, sglang_pool_tokens
from placer.model.spec import ModelSpec
from placer.parallelism import Parallelism
from placer.profiler.serving.server import Scheduler
from placer.remedy import largest, remedies
from placer.units import counted, gib
from placer.workload import Workload

CHUNK_TOKENS = (512, 1024, 2048, 4096, 8192)
"""Prefill chunks worth trying; SGLang's own defaults are 2048, 4096 and 8192."""


@dataclass(frozen=True)
class Level:
    """One point of the grid: settings, the ledger without hot experts, and how many hot experts fit."""

    settings: ServerSettings
    ledger: HbmLedger
    room_experts: int


MOST_RUNNING = 1024
"""Running requests beyond which no level is tried unless --max-running asks for it."""


def running_grid(clients: int) -> tuple[int, ...]:
    """Numbers of running requests worth trying: powers of two, those half-way between, and ``clients``.

    Ends at `MOST_RUNNING`: more clients than that queue.
    """
    most = min(clients, MOST_RUNNING)
    powers = [1 << exponent for exponent in range(most.bit_length())]
    steps = {*powers, *(power * 3 // 2 for power in powers)}
    return tuple(sorted({step for step in steps if step < most} | {most}))


def chunk_grid(prompt_tokens: int, running: int, scheduler: Scheduler = Scheduler.SGLANG) -> tuple[int, ...]:
    """Prefill chunks worth trying for a prompt that is computed alone: a chunk beyond it only costs memory.

    A step of vLLM's also holds a token of every other request that runs, so that a whole prompt takes a larger one.
    Chunks below an eighth of the prompt are left out: they read every cold expert more than eight times. No
    chunk is smaller than the decode batch, which kt-kernel refuses.
    """
    whole = prompt_tokens + (running - 1 if scheduler is Scheduler.VLLM else 0)
    covering = next((chunk for chunk in CHUNK_TOKENS if chunk >= whole), CHUNK_TOKENS[-1])
    least = max(running, min(prompt_tokens / 8, covering))
    inside = [chunk for chunk in CHUNK_TOKENS if least <= chunk <= covering]
    larger = [chunk for chunk in CHUNK_TOKENS if chunk >= running]
    return tuple(inside or larger[:1] or [running])


def levels(
    model: ModelSpec,
    workload: Workload,
    *,
    tp: int,
    budget_bytes: int,
    max_running: int | None,
    min_kv_tokens: int,
    kv_dtypes: tuple[str, ...],
    chunk_tokens: int | None = None,
    min_hot_per_layer: int = 0,
    min_hot_flag: str = "--min-hot",
    speculative: bool = False,
    loss_bytes: int | None = None,
    device_bytes: int | None = None,
    host: HostRoom | None = None,
    scheduler: Scheduler = Scheduler.SGLANG,
) -> tuple[Level, ...]:
    """Every level that fits the budget and leaves room for the least hot experts, in a fixed order.

    ``max_running`` and ``chunk_tokens`` fix a setting; None tries a grid. ``min_hot_per_layer`` is the room
    that settings must leave; which experts fill it is not decided here. ``host`` is looked at only for the changes that
    are told where nothing fits.

    Raises
    ------
    BadInputError
        When the request cannot be served at any budget (longer than the model's context, tp impossible, more
        hot experts than a layer has, a chunk smaller than the decode batch).
    InfeasibleError
        When no level fits: names the line that breaks the budget and the smallest changes that would do.
    """
    if problem := model.fp8_tp_problem(tp):
        raise BadInputError(problem, "choose a tensor-parallel size that keeps FP8 blocks whole")
    longest = workload.longest_request_tokens
    workload.check_context(model.max_context_tokens)
    # The longest request has to fit; how many mean ones run is what the pool is sized for.
    min_kv_tokens = max(min_kv_tokens, longest if longest > workload.request_tokens else 0)
    if not 0 <= min_hot_per_layer <= model.experts:
        raise BadInputError(
            f"{min_hot_flag} is {min_hot_per_layer}",
            f"a layer has {model.experts} experts: give 0 to {model.experts}",
        )
    running = (max_running,) if max_running is not None else running_grid(workload.concurrency)
    if chunk_tokens is not None and chunk_tokens < min(running):
        raise BadInputError(
            f"--chunk {chunk_tokens} is smaller than a decode step of {min(running)} running requests",
            "kt-kernel refuses that: raise --chunk or lower --max-running",
        )
    check_kv_settings(model, chunk_tokens=chunk_tokens or 0, kv_dtype=kv_dtypes[-1], flag="--chunk")
    kv_dtypes = tuple(dtype for dtype in kv_dtypes if holds_kv_dtype(model, dtype))
    page = sglang_page_tokens(model)

    def demand(requests: int, chunk: int, dtype: str) -> MemoryDemand:
        return MemoryDemand(
            model=model,
            parallel=Parallelism(tp),
            budget_bytes=budget_bytes,
            running=requests,
            chunk_tokens=chunk,
            kv_dtype=dtype,
            min_kv_tokens=min_kv_tokens,
            request_tokens=workload.request_tokens,
            hot_per_layer=min_hot_per_layer,
            speculative=speculative,
            loss_bytes=loss_bytes,
            device_bytes=device_bytes,
        )

    def chunks(requests: int) -> tuple[int, ...]:
        if chunk_tokens is not None:
            return (chunk_tokens,)
        return tuple(
            sglang_pool_tokens(chunk, page)
            for chunk in chunk_grid(workload.prompt_tokens, requests, scheduler)
        )

    def counts(dtype: str) -> tuple[int, ...]:
        """With the most requests beside which every expert is hot: a few more would make the CPU compute."""
        if max_running is not None:
            return running
        every = len(model.moe_layers) * model.experts
        most = largest(
            1,
            running[-1],
            lambda requests: demand(requests, chunks(requests)[0], dtype).room_experts == every,
        )
        return tuple(sorted({*running, *(() if most is None else (most,))}))

    tried = [
        demand(requests, chunk, dtype)
        for dtype in kv_dtypes
        for requests in counts(dtype)
        for chunk in chunks(requests)
        if chunk >= requests
    ]
    fitting = tuple(
        Level(demand.settings, demand.ledger(hot_experts=0), demand.room_experts)
        for demand in tried
        if demand.fits
    )
    if not fitting:
        raise _infeasible(tried, workload, host, auto_running=max_running is None, min_hot_flag=min_hot_flag)
    return fitting


_FLAGS = {
    "kv_tokens": "--min-kv-tokens",
    "kv_dtype": "--kv-dtype",
    "running": "--max-running",
    "chunk_tokens": "--chunk",
    "tp": "--tp",
    "budget_bytes": "--hbm-budget",
}


def _infeasible(
    tried: list[MemoryDemand],
    workload: Workload,
    host: HostRoom | None,
    *,
    auto_running: bool,
    min_hot_flag: str,
) -> InfeasibleError:
    """Says what the closest level lacks; fewer running requests were tried already where they are decided."""
    closest = max(tried, key=lambda demand: demand.ledger().unused_bytes)
    ledger, settings = closest.ledger(), closest.settings
    line = ledger.binding_line or "unused"
    asked = f", {closest.hot_per_layer} hot experts per layer" if closest.hot_per_layer else ""
    what = (
        f"does not fit: the budget of {gib(ledger.budget_bytes)} per GPU breaks at line {line!r} "
        f"({gib(ledger.lines[line])}), {gib(-ledger.unused_bytes)} short even with "
        f"{counted(settings.max_running_requests, 'running request')}, chunk {settings.chunk_tokens}, "
        f"{settings.kv_tokens:,} {settings.kv_dtype} KV tokens{asked}"
    )
    if host is not None and host.memory_bytes is not None and host_short(closest, host):
        held = host.ledger(closest.model, closest.chunk_tokens).total_bytes
        what += (
            f"; host memory of {gib(host.memory_bytes)} is too small too: kt-kernel holds every expert there, which "
            f"takes {gib(held)}"
        )
    named = {**_FLAGS, "request_tokens": workload.length_options, "hot_per_layer": min_hot_flag}
    flags = {kind: flag for kind, flag in named.items() if not (kind == "running" and auto_running)}
    # Whatever least pool is asked for, the longest request has to fit.
    longest = workload.longest_request_tokens
    cures = [
        cure
        for cure in (
            remedies(closest, flags)
            if host is None
            else with_host_memory(remedies(closest, flags), host, "--host-memory")
        )
        if cure.kind != "kv_tokens" or longest <= workload.request_tokens or int(cure.value) >= longest
    ]
    advice = [
        f"{cure.advice} and a profile of that tp" if cure.kind == "tp" else cure.advice for cure in cures
    ]
    return InfeasibleError(what, ("any one of these fits: " if len(advice) > 1 else "") + "; ".join(advice))
