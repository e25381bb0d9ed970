"""The structured solver on an instance with several memory levels: solve each, prune by bounds."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from placer.solvers.deadline import Deadline
from placer.solvers.problem import PlacementProblem
from placer.solvers.solution import Solution, SolverStatus, relative_gap
from placer.solvers.structured import solve_structured

FIRST_GAP = 0.02
"""Gap to which a level is solved before it is known to be worth more."""
FIRST_SHARE = 0.5
"""Share of the time for the first solve of all levels."""


def solve_levels(
    problems: Sequence[PlacementProblem], *, gap: float, time_limit_s: float, prove: bool = False
) -> Solution:
    """The best placement over all levels, with the least of their bounds.

    Each level is solved to `FIRST_GAP`; then, from the lowest bound up, those whose bound stays below the
    best objective are solved to ``gap``. The gap of the answer is stated without the chosen level's
    constant.
    """
    if len(problems) == 1:
        return solve_structured(problems[0], gap=gap, time_limit_s=time_limit_s, prove=prove)
    deadline = Deadline(time_limit_s)
    tried: list[Solution] = []
    for turn, problem in enumerate(problems):
        left_s = deadline.left_s() - (1 - FIRST_SHARE) * time_limit_s
        share_s = max(left_s, 0.0) / (len(problems) - turn)
        tried.append(solve_structured(problem, gap=max(gap, FIRST_GAP), time_limit_s=share_s))
    open_levels = sorted(range(len(problems)), key=lambda level: _bound_us(tried[level]))
    for turn, level in enumerate(open_levels):
        best = tried[_best(tried)]
        if best.objective_us is not None and _bound_us(tried[level]) >= best.objective_us:
            continue
        if deadline.passed() or _closed(tried[level], gap):
            continue
        before = tried[level]
        again = solve_structured(
            problems[level],
            gap=gap,
            time_limit_s=deadline.left_s() / (len(problems) - turn),
            warm_starts=() if before.hot is None else (before.hot,),
            prove=prove,
        )
        tried[level] = replace(again, bound_us=max(_bound_us(before), _bound_us(again)))
    return _combined(problems, tried, gap, deadline)


def _combined(
    problems: Sequence[PlacementProblem], tried: Sequence[Solution], gap: float, deadline: Deadline
) -> Solution:
    level = _best(tried)
    best = tried[level]
    possible = [one for one in tried if one.status is not SolverStatus.INFEASIBLE]
    bounds, relaxed = [_bound_us(one) for one in possible], [one.lp_us for one in possible]
    if best.objective_us is None:
        return replace(best, seconds=deadline.elapsed_s())
    bound = min(*bounds, best.objective_us)
    proven = (
        relative_gap(best.objective_us, bound, problems[level].constant_us) if np.isfinite(bound) else None
    )
    if proven is not None and proven <= max(gap, 1e-9):
        status = SolverStatus.OPTIMAL
    else:
        status = SolverStatus.TIME_LIMIT if deadline.passed() else SolverStatus.SEARCHED
    known = [one for one in relaxed if one is not None]
    return replace(
        best,
        status=status,
        bound_us=bound if np.isfinite(bound) else None,
        gap=proven,
        lp_us=min(known) if len(known) == len(relaxed) else None,
        seconds=deadline.elapsed_s(),
    )


def _best(tried: Sequence[Solution]) -> int:
    objectives = [np.inf if one.objective_us is None else one.objective_us for one in tried]
    return int(np.argmin(objectives))


def _bound_us(solution: Solution) -> float:
    if solution.status is SolverStatus.INFEASIBLE:
        return float(np.inf)
    return -np.inf if solution.bound_us is None else solution.bound_us


def _closed(solution: Solution, gap: float) -> bool:
    return solution.gap is not None and solution.gap <= gap
