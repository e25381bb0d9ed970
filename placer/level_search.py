"""The levels of a grid, each solved as far as it can still matter to the answer."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from placer.hbm import ServerSettings
from placer.level import Level
from placer.level_problems import LevelProblems
from placer.level_solution import LEVEL_GAP, LevelSolution, solve_level
from placer.objective import Objective
from placer.solvers.problem import Mask
from placer.solvers.solution import SolverStatus

_SHARE = 0.25
"""Of the time that is left for all levels but the best, what one of them may take."""
_LEAST_SHARE = 1 / 30
"""Of the time limit, what every level may take in any case."""

Progress = Callable[[str, float], None]


@dataclass
class LevelSearch:
    """Solves levels in order of promise; a level ends where its bound shows that no plan of it is the best.

    The most promising level gets the request's whole time limit, the others one more together: first until each is
    solved to 2 % or cut off, then, those of the lowest bound first, until the best plan's gap is what was asked for.

    Attributes
    ----------
    serves
        Whether a plan (bool [L, E]) at a level keeps the latency targets.
    bounds
        By settings, what no plan has an objective below.
    """

    problems: LevelProblems
    serves: Callable[[Level, Mask], bool]
    progress: Progress
    bounds: dict[ServerSettings, float] = field(default_factory=dict)

    def solved(self, grid: tuple[Level, ...]) -> list[LevelSolution]:
        """Every level of ``grid`` that has a plan, by objective."""
        request = self.problems.request
        tried: list[LevelSolution] = []
        cutoff_us, left_s = np.inf, request.time_limit_s
        for number, level in enumerate(self.problems.promising_first(grid)):
            self.progress(
                f"level {number + 1} of {len(grid)}: {level.settings.max_running_requests} running requests, "
                f"chunk {level.settings.chunk_tokens}",
                0.8 * number / len(grid),
            )
            problem, frequency = self.problems.problem(level), self.problems.baseline("frequency", level)
            asked = replace(
                request, time_limit_s=request.time_limit_s if not tried else self._share_s(left_s)
            )
            gap = request.gap if not tried else max(LEVEL_GAP, request.gap)
            solution = solve_level(problem, asked, gap, frequency, cutoff_us=cutoff_us)
            left_s -= solution.seconds if tried else 0.0
            if solution.bound_us is not None:
                self.bounds[level.settings] = solution.bound_us
            if solution.hot is None:
                continue
            entry = LevelSolution(level, problem, solution, asked_gap=gap)
            tried.append(entry)
            if self._cuts and entry.objective_us() < cutoff_us and self.serves(level, entry.hot):
                cutoff_us = entry.objective_us()
        self.progress(f"proving the plan to {request.gap:.1%}", 0.8)
        return self.refined(tried)

    def refined(self, tried: list[LevelSolution]) -> list[LevelSolution]:
        """Levels by objective, each that its bound does not rule out solved to the gap asked for; raises bounds."""
        request = self.problems.request
        entries = dict(enumerate(tried))
        best = min(entries, key=lambda number: entries[number].objective_us(), default=None)
        if best is None:
            return []
        left_s = request.time_limit_s
        order = sorted(
            entries, key=lambda number: (number != best, self.bounds[entries[number].level.settings])
        )
        for number in order:
            entry = entries[number]
            settings = entry.level.settings
            best_us = min(other.objective_us() for other in entries.values())
            closed = entry.solution.gap is not None and entry.solution.gap <= request.gap
            again = entry.asked_gap <= request.gap and not request.prove
            if closed or again or self.bounds[settings] >= best_us:
                continue
            share_s = request.time_limit_s if number == best else self._share_s(left_s)
            stuck = (
                entry.solution.status is SolverStatus.TIME_LIMIT and share_s < 2.0 * entry.solution.seconds
            )
            if stuck and not request.prove:
                # As long again would end where it ended.
                continue
            cuts = self._cuts and entry.emphasis is None and number != best
            cutoff_us = best_us if cuts else np.inf
            solution = solve_level(
                entry.program,
                replace(request, time_limit_s=share_s),
                request.gap,
                entry.hot,
                prove=request.prove,
                cutoff_us=cutoff_us,
            )
            left_s -= 0.0 if number == best else solution.seconds
            # What was cut off is solved on where the plan that did it turns out to miss a target.
            reached = solution.bound_us is not None and solution.bound_us >= cutoff_us
            asked_gap = entry.asked_gap if reached else request.gap
            entries[number] = replace(entry, solution=solution, asked_gap=asked_gap)
            self.bounds[settings] = max(self.bounds[settings], entries[number].bound_us)
        return sorted(entries.values(), key=LevelSolution.objective_us)

    @property
    def _cuts(self) -> bool:
        """Whether a plan that serves makes plans of a larger objective worthless."""
        request = self.problems.request
        return request.objective is Objective.THROUGHPUT and not request.frontier

    def _share_s(self, left_s: float) -> float:
        return max(_LEAST_SHARE * self.problems.request.time_limit_s, _SHARE * left_s)
