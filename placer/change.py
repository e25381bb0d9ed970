"""Changes to a plan's server that a user asks about: each as a request of its own, or why it cannot be told."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from placer.datasheet import larger_gpu
from placer.errors import BadInputError
from placer.hbm import ServerSettings
from placer.kv_pool import holds_kv_dtype
from placer.model.spec import ModelSpec
from placer.profiler.cost import CostModel, SideCost
from placer.profiler.datasheet_cpu import DatasheetCpu
from placer.profiler.profile import Profile
from placer.solve_request import SolveRequest
from placer.tp_cost import tp_cost
from placer.units import counted, gib

MORE_BUDGET = 1.1
_MEASURED = "the profile's cost model"


@dataclass(frozen=True)
class Change:
    """One thing that differs from the plan.

    Attributes
    ----------
    name, text
        A short name, and what differs, in a few words.
    request
        What is asked for instead; None where it cannot be told.
    cost
        The cost model under it.
    origin
        Where its times come from, or why it cannot be told.
    regime
        What the CPU kernel does differently, or None.
    """

    name: str
    text: str
    request: SolveRequest | None
    cost: CostModel
    origin: str
    regime: str | None = None


def planned_request(request: SolveRequest, settings: ServerSettings) -> SolveRequest:
    """``request`` with the plan's own settings, and without targets, proofs and files."""
    return replace(
        request,
        workload=replace(request.workload, slo_tpot_ms=None, slo_ttft_ms=None),
        max_running=settings.max_running_requests,
        chunk_tokens=settings.chunk_tokens,
        kv_dtypes=(settings.kv_dtype,),
        solver="auto",
        prove=False,
        frontier=False,
        lp_path=None,
        robust=None,
    )


def changes(
    model: ModelSpec, profile: Profile, request: SolveRequest, settings: ServerSettings
) -> Iterator[Change]:
    """What one may change of a plan made for ``request`` at ``settings``, in the order of the table."""
    base = planned_request(request, settings)
    cost = profile.cost_model()

    def change(name: str, text: str, asked: SolveRequest) -> Change:
        return Change(name, text, asked, cost, _MEASURED)

    other = "bf16" if settings.kv_dtype == "fp8" else "fp8"
    if holds_kv_dtype(model, other):
        yield change("kv_dtype", f"KV in {other}", replace(base, kv_dtypes=(other,)))
    smaller = settings.chunk_tokens // 2
    if smaller >= settings.max_running_requests:
        yield change("chunk", f"chunk of {smaller:,}", replace(base, chunk_tokens=smaller))
    for running in _running(cost.cold, settings.max_running_requests):
        yield _running_change(model, base, cost, settings.max_running_requests, running)
    yield _threads(profile, base, cost)
    yield _more_gpus(model, profile, base, settings)
    more = int(request.budget_bytes * MORE_BUDGET)
    device = request.device_bytes
    beyond = "" if device is None or more <= device else f", beyond the GPU's {gib(device)}"
    yield change("budget", f"10 % more HBM{beyond}", _with_budget(base, more))
    if device is not None and (gpu := larger_gpu(device)) is not None:
        enough = int(request.budget_bytes / device * gpu.usable_bytes)
        whole = gib(gpu.usable_bytes)
        said = (
            f"{gib(enough)} of {gpu.name}'s {whole}"
            if enough < gpu.usable_bytes
            else f"{whole}, as {gpu.name}"
        )
        yield Change(
            "larger_gpu",
            said,
            _with_budget(base, enough),
            cost,
            f"{_MEASURED}: this GPU's speed with the memory of {gpu.name}",
        )


def _with_budget(request: SolveRequest, budget_bytes: int) -> SolveRequest:
    device = request.device_bytes
    return replace(
        request,
        budget_bytes=budget_bytes,
        device_bytes=None if device is None else max(device, budget_bytes),
    )


def _running(cold: SideCost, running: int) -> list[int]:
    """Half and twice as many running requests, and the first beyond the CPU kernel's next border."""
    borders = [regime.max_tokens for regime in cold.regimes if regime.max_tokens is not None]
    beyond = next((border + 1 for border in borders if border >= running), None)
    wanted = {running // 2, 2 * running} | (set() if beyond is None else {beyond})
    return sorted(wanted - {0, running})


def _running_change(
    model: ModelSpec, base: SolveRequest, cost: CostModel, before: int, running: int
) -> Change:
    workload = base.workload
    text = f"{running:,} running"
    if running > workload.concurrency:
        workload = replace(workload, concurrency=running)
        text += f", {counted(running, 'client')}"
    asked = replace(
        base,
        workload=workload,
        max_running=running,
        chunk_tokens=None if base.chunk_tokens is None else max(base.chunk_tokens, running),
    )
    was, becomes = (cost.cold.regime(count) for count in (before, running))
    regime = None
    if was != becomes:
        border = (
            min(was.max_tokens or 0, becomes.max_tokens or 0) or max(was.min_tokens, becomes.min_tokens) - 1
        )
        rule = " (4E/top-k)" if border == 4 * model.experts // model.top_k else ""
        side = "beyond" if running > before else "within"
        regime = f"{running:,} tokens a step lie {side} the border of the CPU kernel at {border:,}{rule}"
    name = "fewer_running" if running < before else "more_running"
    return Change(name, text, asked, cost, _MEASURED, regime)


def _threads(profile: Profile, base: SolveRequest, cost: CostModel) -> Change:
    used = profile.cpu.threads
    if isinstance(profile.cpu, DatasheetCpu):
        return Change(
            "threads",
            f"more than {used} CPU threads",
            None,
            cost,
            "cannot be told: the CPU is a datasheet's with all its cores (profile again with another --cpu)",
        )
    timed = {timing.threads: timing.p25_us for timing in profile.cpu.sweep if timing.p25_us is not None}
    more = {threads: us for threads, us in timed.items() if threads > used}
    if used not in timed or not more:
        why = "tried none above it" if used in timed else "was made with one count"
        return Change(
            "threads",
            f"more than {used} CPU threads",
            None,
            cost,
            f"cannot be told: the profile {why} (profile again with --threads)",
        )
    threads = min(more, key=lambda count: more[count])
    factor = more[threads] / timed[used]
    return Change(
        "threads",
        f"{threads} CPU threads (not {used})",
        base,
        replace(cost, cold=cost.cold.scaled(factor)),
        f"extrapolated: the cold side times {factor:.2f}, from one decode call of the profile's thread sweep",
    )


def _more_gpus(model: ModelSpec, profile: Profile, base: SolveRequest, settings: ServerSettings) -> Change:
    tp = 2 * base.tp
    text = f"{tp} GPUs (tp {tp})"
    if problem := model.fp8_tp_problem(tp):
        return Change("gpus", text, None, profile.cost_model(), f"cannot be told: {problem}")
    try:
        cost, origin = tp_cost(model, profile, tp, settings, base.workload)
    except BadInputError as error:
        return Change("gpus", text, None, profile.cost_model(), f"cannot be told: {error.what}")
    return Change("gpus", text, replace(base, tp=tp), cost, f"extrapolated: {origin}")
