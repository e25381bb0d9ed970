"""Hot/cold serving at one number of GPUs: what a solve gives under the traffic of a comparison."""

from dataclasses import replace

from placer.errors import InfeasibleError
from placer.model.spec import ModelSpec
from placer.modes.request import CompareRequest
from placer.profiler.cost import CostModel
from placer.profiler.trace.trace import Trace
from placer.solve import solve
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.targets import has_targets
from placer.untraced import solve_untraced

GAP = 0.02
"""Gap to which a placement is solved: far below what the datasheets leave open."""
SECONDS = 5.0
"""Time limit of the solver on a level."""


def solve_compared(
    model: ModelSpec, trace: Trace | None, cost: CostModel, request: CompareRequest, tp: int
) -> Solved:
    """The best placement over ``tp`` GPUs; where none keeps the targets, the best without them.

    Raises
    ------
    InfeasibleError
        When no server fits.
    """
    asked = SolveRequest(
        workload=request.workload,
        budget_bytes=request.budget_bytes,
        tp=tp,
        min_kv_tokens=request.least_kv_tokens,
        kv_dtypes=(request.kv_dtype,),
        gap=GAP,
        # Without a trace nothing is searched but what would meet missed targets, which the other rows answer here.
        time_limit_s=SECONDS if trace is not None else 0.01,
        seed=request.seed,
        device_bytes=request.device_bytes,
        scheduler=request.scheduler,
        behaviour=request.behaviour,
    )
    try:
        return _solved(model, trace, cost, asked)
    except InfeasibleError:
        if not has_targets(request.workload):
            raise
    free = replace(request.workload, slo_tpot_ms=None, slo_ttft_ms=None)
    return _solved(model, trace, cost, replace(asked, workload=free))


def _solved(model: ModelSpec, trace: Trace | None, cost: CostModel, request: SolveRequest) -> Solved:
    return solve_untraced(model, cost, request) if trace is None else solve(model, trace, cost, request)
