"""Hot/cold serving at one number of GPUs: what a solve gives under the traffic of a comparison."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from placer.host import HostRoom
from placer.level import running_grid
from placer.model.spec import ModelSpec
from placer.modes.request import CompareRequest
from placer.modes.search import target_excesses, tpot_allows
from placer.profiler.cost import CostModel
from placer.profiler.trace.trace import Trace
from placer.remedy import largest
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solving import solve
from placer.untraced import solve_untraced

GAP = 0.02
"""Gap to which a placement is solved: far below what the datasheets leave open."""
SECONDS = 5.0
"""Time limit of the solver on a level."""


def solve_compared(
    model: ModelSpec,
    trace: Trace | None,
    cost: CostModel,
    request: CompareRequest,
    tp: int,
    host: HostRoom | None = None,
) -> Solved:
    """The best placement over ``tp`` GPUs; where it misses the targets, one of fewer running requests that keeps them.

    When none keeps them, the one that misses by the smallest factor.

    Raises
    ------
    InfeasibleError
        When no server fits.
    """
    workload = replace(request.workload, slo_tpot_ms=None, slo_ttft_ms=None)
    asked = SolveRequest(
        workload=workload,
        budget_bytes=request.budget_bytes,
        tp=tp,
        min_kv_tokens=request.least_kv_tokens,
        kv_dtypes=(request.kv_dtype,),
        gap=GAP,
        time_limit_s=SECONDS,
        seed=request.seed,
        device_bytes=request.device_bytes,
        scheduler=request.scheduler,
        behaviour=request.behaviour,
        host=host,
    )
    found: dict[int, Solved] = {}

    def excesses(running: int) -> tuple[float, float]:
        if running not in found:
            found[running] = _solved(model, trace, cost, replace(asked, max_running=running))
        return _excesses(found[running], request)

    fastest = _solved(model, trace, cost, asked)
    most = fastest.level.settings.max_running_requests
    found[most] = fastest
    if max(excesses(most)) > 1.0:
        _try_fewer(running_grid(most), excesses)
    # What keeps up serves all that arrives, with more running requests too; else in order of throughput.
    ordered = sorted(found.values(), key=_preference)
    kept = (solved for solved in ordered if max(_excesses(solved, request)) <= 1.0)
    return next(kept, min(ordered, key=lambda solved: max(_excesses(solved, request))))


def _try_fewer(grid: Sequence[int], excesses: Callable[[int], tuple[float, float]]) -> None:
    """Ask for the excesses of TPOT and TTFT over their targets where they may be least.

    Where TPOT is what misses: the most running requests at which it is not, by bisection. Where TTFT is: every fourth
    size, as room that fewer requests leave holds more hot experts, which shorten prompts too.
    """
    tpot, ttft = excesses(grid[-1])
    if not tpot_allows(tpot, ttft):
        largest(0, len(grid) - 2, lambda place: tpot_allows(*excesses(grid[place])))
        return
    for running in grid[-5::-4]:
        excesses(running)


def _preference(solved: Solved) -> tuple[bool, float]:
    served = solved.prediction
    return served.serving is not None and served.serving.falls_behind, -served.output_tokens_per_s


def _excesses(solved: Solved, request: CompareRequest) -> tuple[float, float]:
    if solved.prediction.serving is None:
        raise ValueError("a solved placement is simulated")
    return target_excesses(solved.prediction.serving, request.workload)


def _solved(model: ModelSpec, trace: Trace | None, cost: CostModel, request: SolveRequest) -> Solved:
    return solve_untraced(model, cost, request) if trace is None else solve(model, trace, cost, request)
