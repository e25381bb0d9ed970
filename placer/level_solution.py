"""Levels solved: the structured solver on one level, again where its bound leaves it open, and as an exact ILP."""

from dataclasses import dataclass, replace

import numpy as np

from placer.errors import BadInputError, InfeasibleError
from placer.hbm import ServerSettings
from placer.level import Level
from placer.solve_request import SolveRequest
from placer.solvers.ilp import solve_ilp
from placer.solvers.problem import Mask, PlacementProblem
from placer.solvers.solution import Solution, SolverStatus
from placer.solvers.structured import solve_structured

LEVEL_GAP = 0.02
"""Gap to which a level is solved before it is known to be worth more."""


@dataclass(frozen=True)
class LevelSolution:
    """A level with its problem and the solver's answer."""

    level: Level
    problem: PlacementProblem
    solution: Solution

    def objective_us(self) -> float:
        """The level's objective; infinite without a plan."""
        return np.inf if self.solution.objective_us is None else self.solution.objective_us

    @property
    def hot(self) -> Mask:
        """The level's plan (bool [L, E])."""
        if self.solution.hot is None:
            raise InfeasibleError(f"no placement at level {self.level.settings}", "raise --time-limit")
        return self.solution.hot


def solve_level(
    problem: PlacementProblem, request: SolveRequest, gap: float, warm_start: Mask, *, prove: bool = False
) -> Solution:
    """The structured solver's answer to ``problem`` within the request's time limit; Ctrl-C goes on to the caller."""
    solution = solve_structured(
        problem,
        gap=gap,
        time_limit_s=request.time_limit_s,
        seed=request.seed,
        warm_starts=(warm_start,),
        prove=prove,
    )
    if solution.status is SolverStatus.INTERRUPTED:
        # The solver hands back what it has; a decision over levels that were never tried is none.
        raise KeyboardInterrupt
    return solution


def refined(
    tried: list[LevelSolution], bounds: dict[ServerSettings, float], request: SolveRequest
) -> list[LevelSolution]:
    """Levels by objective, each that its bound does not rule out solved to ``request.gap``; raises ``bounds``."""
    entries = sorted(tried, key=LevelSolution.objective_us)
    for number, entry in enumerate(entries):
        best_us = min(other.objective_us() for other in entries)
        closed = entry.solution.gap is not None and entry.solution.gap <= request.gap
        if closed or bounds[entry.level.settings] >= best_us:
            continue
        solution = solve_level(entry.problem, request, request.gap, entry.hot, prove=request.prove)
        entries[number] = replace(entry, solution=solution)
        bounds[entry.level.settings] = max(bounds[entry.level.settings], solution.bound_us or -np.inf)
    return sorted(entries, key=LevelSolution.objective_us)


def exactly(entry: LevelSolution, request: SolveRequest) -> LevelSolution:
    """The level solved again as one ILP by the solver that was asked for."""
    exact = solve_ilp(
        entry.problem,
        solver="highs" if request.solver == "highs" else "cbc",
        gap=request.gap,
        time_limit_s=request.time_limit_s,
    )
    if exact.hot is None:
        if exact.status is SolverStatus.INFEASIBLE:
            raise InfeasibleError("the ILP solver reports that no placement keeps the budget", "")
        raise BadInputError(
            f"{exact.solver} reached no plan in {request.time_limit_s:g} s (status: {exact.status.value})",
            "raise --time-limit, or use --solver auto",
        )
    return replace(entry, solution=exact)
