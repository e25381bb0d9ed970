"""Plans simulated on the requests kept for choosing: which keep the targets, and which of two is better."""

from dataclasses import dataclass, replace

from placer.hbm import ServerSettings
from placer.level import Level
from placer.level_cost import LevelCosts
from placer.level_steps import LevelSteps
from placer.model.spec import ModelSpec
from placer.objective import Objective
from placer.prediction import Prediction, predict_at_sizes
from placer.profiler.cost import CostModel
from placer.profiler.trace.selection import coverage_of_mask, selection_counts
from placer.profiler.trace.trace import Trace
from placer.replays import Replays
from placer.solve_request import SolveRequest
from placer.solvers.problem import Mask
from placer.targets import Reached, has_targets, meets_targets, nearest, worse

ALIKE = 0.001
"""Difference of simulated figures below which two plans are alike and throughput decides."""


@dataclass(frozen=True)
class Candidate:
    """A plan with its simulated figures and its time per output token on the solving steps."""

    figures: Prediction
    objective_us: float

    @property
    def keeps_up(self) -> bool:
        """Whether the plan's server keeps up with what arrives."""
        return self.figures.serving is None or not self.figures.serving.falls_behind

    def better_than(self, other: "Candidate", objective: Objective) -> bool:
        """Whether this plan is to be preferred by ``objective``."""
        if objective is Objective.THROUGHPUT:
            return self.objective_us < other.objective_us
        # Short steps of few running requests are worth nothing to those that wait ever longer.
        if objective is Objective.LATENCY and self.keeps_up != other.keeps_up:
            return self.keeps_up
        mine, its = (simulated(objective, each.figures) for each in (self, other))
        if abs(mine - its) <= ALIKE * abs(its):
            return self.figures.output_tokens_per_s > (1 + ALIKE) * other.figures.output_tokens_per_s
        return mine < its


def simulated(objective: Objective, figures: Prediction) -> float:
    """What ``objective`` makes least: p95 TPOT in milliseconds, goodput or throughput with the sign turned."""
    if objective is Objective.LATENCY:
        return figures.tpot_ms_p95
    if objective is Objective.GOODPUT:
        return -(figures.goodput_tokens_per_s or 0.0)
    return -figures.output_tokens_per_s


def serves(request: SolveRequest, figures: Prediction) -> bool:
    """Whether ``figures`` keep the targets; for goodput, whether any request does."""
    if request.objective is Objective.GOODPUT:
        return bool(figures.goodput_tokens_per_s)
    return meets_targets(request.workload, figures)


class Choosing:
    """Simulates plans on the choosing requests, each once, and remembers what every one reached."""

    def __init__(
        self, model: ModelSpec, cost: CostModel, request: SolveRequest, replays: Replays, trace: Trace
    ) -> None:
        self._model, self._cost, self._request, self._replays = model, cost, request, replays
        self._counts = selection_counts(trace)
        self._figures: dict[tuple[ServerSettings, bytes], Prediction] = {}
        self._plans: list[tuple[Level, Mask]] = []
        self._last: tuple[Level, LevelCosts] | None = None
        self._last_steps: tuple[Level, LevelSteps] | None = None

    @property
    def reached(self) -> tuple[Reached, ...]:
        """Every plan simulated so far."""
        return tuple(Reached(settings, figures) for (settings, _), figures in self._figures.items())

    def reached_beside(self, other: "Choosing") -> tuple[Reached, ...]:
        """`reached`, with the worse of these and ``other``'s requests for the plans that are nearest to the targets.

        A target that is raised to what the nearest plan reaches is then one that it keeps on both.
        """
        reached, compared = list(self.reached), set[int]()
        while (number := nearest(self._request.workload, reached)) is not None and number not in compared:
            compared.add(number)
            found = reached[number]
            reached[number] = replace(
                found, figures=worse(found.figures, other.figures(*self._plans[number]))
            )
        return tuple(reached)

    def costs(self, level: Level) -> LevelCosts:
        """What the choosing steps cost at ``level``."""
        if self._last is None or self._last[0] is not level:
            workload, tp = self._request.workload, self._request.tp
            self._last = level, self._replays.costs(self._model, self._cost, level, workload, tp)
        return self._last[1]

    def figures(self, level: Level, hot: Mask) -> Prediction:
        """Simulated figures of the plan ``hot`` (bool [L, E]) at ``level``."""
        key = level.settings, hot.tobytes()
        if key not in self._figures:
            self._figures[key] = self._predict(level, hot)
            self._plans.append((level, hot))
        return self._figures[key]

    def _predict(self, level: Level, hot: Mask) -> Prediction:
        request, costs = self._request, self.costs(level)
        return predict_at_sizes(
            self._steps(level).under({"plan": hot}),
            "plan",
            costs,
            hot,
            1.0 - coverage_of_mask(self._counts, hot),
            level.settings,
            request.workload,
            request.seed,
            scheduler=request.scheduler,
        )

    def _steps(self, level: Level) -> LevelSteps:
        """Steps of every size that a server of ``level`` runs; of the last level asked for they are kept."""
        if self._last_steps is None or self._last_steps[0] is not level:
            request, settings = self._request, level.settings
            steps = LevelSteps(
                self._model,
                self._cost,
                self._replays,
                settings,
                request.workload,
                request.tp,
                {},
                request.scheduler,
            )
            steps.known(self.costs(level))
            self._last_steps = level, steps
        return self._last_steps[1]

    def serves(self, level: Level, hot: Mask) -> bool:
        """Whether the plan keeps the targets; for goodput, whether any request does."""
        return not has_targets(self._request.workload) or serves(self._request, self.figures(level, hot))
