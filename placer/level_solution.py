"""Levels solved: the structured solver on one level, again where its bound leaves it open, and as an exact ILP."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from placer.errors import BadInputError, InfeasibleError
from placer.level import Level
from placer.level_problems import LevelProblems
from placer.objective import Weighting
from placer.solve_request import SolveRequest
from placer.solvers.ilp import solve_ilp
from placer.solvers.problem import Mask, PlacementProblem
from placer.solvers.solution import Solution, SolverStatus
from placer.solvers.structured import solve_structured

LEVEL_GAP = 0.02
"""Gap to which a level is solved before it is known to be worth more."""
_WARM_SHARE = 1 / 3
"""Of the time limit, what a level gets that is solved again from its plan on fewer steps."""


@dataclass(frozen=True)
class Emphasis:
    """The program that was solved in place of a level's own, so that a latency target is kept.

    With a price p on the target's limit it minimises the objective + p · limit, and its bound less p · target bounds
    the objective of every plan within the limit (Lagrange). ``credit_us`` is p · target; None where the limit alone
    was minimised, which says nothing about the objective.
    """

    weighting: Weighting
    problem: PlacementProblem
    credit_us: float | None


@dataclass(frozen=True)
class LevelSolution:
    """A level with its problem and the solver's answer to it, or to an ``emphasis`` in its place.

    ``asked_gap`` is the gap at which the solver was to stop.
    """

    level: Level
    problem: PlacementProblem
    solution: Solution
    emphasis: Emphasis | None = None
    asked_gap: float = LEVEL_GAP

    @property
    def program(self) -> PlacementProblem:
        """What was solved."""
        return self.problem if self.emphasis is None else self.emphasis.problem

    @cached_property
    def _objective_us(self) -> float:
        if self.solution.hot is None or self.solution.objective_us is None:
            return np.inf
        return (
            self.solution.objective_us
            if self.emphasis is None
            else self.problem.objective_us(self.solution.hot)
        )

    def objective_us(self) -> float:
        """The plan's objective; infinite without a plan."""
        return self._objective_us

    @property
    def bound_us(self) -> float:
        """What no plan at the level has an objective below, of those within the limit of an emphasis."""
        if self.solution.bound_us is None:
            return -np.inf
        if self.emphasis is None:
            return self.solution.bound_us
        return (
            -np.inf if self.emphasis.credit_us is None else self.solution.bound_us - self.emphasis.credit_us
        )

    @property
    def price_us_per_byte(self) -> float | None:
        """The multiplier of the budget, in the objective's units."""
        stated = self.emphasis is None or self.emphasis.credit_us is not None
        return self.solution.price_us_per_byte if stated else None

    @property
    def hot(self) -> Mask:
        """The level's plan (bool [L, E])."""
        if self.solution.hot is None:
            raise InfeasibleError(f"no placement at level {self.level.settings}", "raise --time-limit")
        return self.solution.hot

    def with_plan(self, hot: Mask) -> "LevelSolution":
        """The level with another plan in place of the solver's own."""
        plan = replace(self.solution, hot=hot, objective_us=self.program.objective_us(hot))
        return replace(self, solution=plan)


def solve_level(
    problem: PlacementProblem,
    request: SolveRequest,
    gap: float,
    warm_start: Mask,
    *,
    prove: bool = False,
    cutoff_us: float = np.inf,
) -> Solution:
    """The structured solver's answer to ``problem`` within the request's time limit; Ctrl-C goes on to the caller."""
    solution = solve_structured(
        problem,
        gap=gap,
        time_limit_s=request.time_limit_s,
        seed=request.seed,
        warm_starts=(warm_start,),
        prove=prove,
        cutoff_us=cutoff_us,
    )
    if solution.status is SolverStatus.INTERRUPTED:
        # The solver hands back what it has; a decision over levels that were never tried is none.
        raise KeyboardInterrupt
    return solution


def anew(problems: LevelProblems, entry: LevelSolution, warm_start: Mask) -> LevelSolution:
    """The level of ``entry`` solved on other steps from ``warm_start``, with the same emphasis, in less time."""
    request, problem, emphasis = problems.request, problems.problem(entry.level), entry.emphasis
    if emphasis is not None:
        emphasis = replace(emphasis, problem=problems.problem(entry.level, emphasis.weighting))
    program = problem if emphasis is None else emphasis.problem
    shorter = replace(request, time_limit_s=_WARM_SHARE * request.time_limit_s)
    solution = solve_level(program, shorter, max(LEVEL_GAP, request.gap), warm_start)
    return LevelSolution(entry.level, problem, solution, emphasis)


def own_bound_us(entry: LevelSolution, request: SolveRequest) -> float:
    """A bound on every plan of the level, or on those within the limit of its emphasis if that is higher."""
    if entry.emphasis is None:
        return entry.bound_us
    own = solve_level(entry.problem, request, max(LEVEL_GAP, request.gap), entry.hot)
    return max(entry.bound_us, own.bound_us or -np.inf)


def exactly(entry: LevelSolution, request: SolveRequest) -> LevelSolution:
    """The level solved again as one ILP by the solver that was asked for."""
    exact = solve_ilp(
        entry.program,
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
