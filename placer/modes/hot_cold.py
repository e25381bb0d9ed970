"""Hot/cold serving at one number of GPUs: what a solve gives under the traffic of a comparison."""

from dataclasses import replace

from placer.host import HostRoom
from placer.model.spec import ModelSpec
from placer.modes.request import CompareRequest
from placer.modes.search import target_excess
from placer.profiler.cost import CostModel
from placer.profiler.trace.trace import Trace
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

    Fewer are tried in quarters, and not at all where a step of a single request takes longer than is asked. When none
    keeps them, the one that misses by the smallest factor.

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
    found = [_solved(model, trace, cost, asked)]
    running = found[0].level.settings.max_running_requests
    if _excess(found[0], request) > 1.0 and running > 1:
        found.append(_solved(model, trace, cost, replace(asked, max_running=1)))
        target = request.workload.slo_tpot_ms
        within = target is None or found[1].prediction.decode_step_ms <= target
        while within and (running := running // 4) > 1:
            found.append(_solved(model, trace, cost, replace(asked, max_running=running)))
    # Found in order of throughput, but for the single request.
    ordered = sorted(found, key=lambda solved: -solved.prediction.output_tokens_per_s)
    kept = (solved for solved in ordered if _excess(solved, request) <= 1.0)
    return next(kept, min(ordered, key=lambda solved: _excess(solved, request)))


def _excess(solved: Solved, request: CompareRequest) -> float:
    if solved.prediction.serving is None:
        raise ValueError("a solved placement is simulated")
    return target_excess(solved.prediction.serving, request.workload)


def _solved(model: ModelSpec, trace: Trace | None, cost: CostModel, request: SolveRequest) -> Solved:
    return solve_untraced(model, cost, request) if trace is None else solve(model, trace, cost, request)
