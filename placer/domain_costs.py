"""Each domain of a trace by itself at one level: what its steps cost, and its placement problem."""

from collections.abc import Callable
from dataclasses import dataclass

from placer.level import Level
from placer.level_cost import LevelCosts
from placer.model.spec import ModelSpec
from placer.profiler.cost import CostModel
from placer.profiler.trace.mix import of_domain
from placer.profiler.trace.split import tokens_where
from placer.profiler.trace.trace import TokenTrace, Trace
from placer.replays import EVALUATION_STEPS, Replays
from placer.sampling import LEAST_STEPS, decode_steps
from placer.solvers.problem import PlacementProblem
from placer.workload import Workload

_STEPS_TOGETHER = 4
"""Steps of all domains together, in multiples of one solve's."""


@dataclass(frozen=True)
class Domains:
    """Domains by name, at one level."""

    names: tuple[str, ...]
    model: ModelSpec
    cost: CostModel
    level: Level
    workload: Workload
    tp: int
    prefill_from: str

    def problems(
        self, trace: Trace, seed: int, problem: Callable[[Trace, Replays], PlacementProblem]
    ) -> dict[str, PlacementProblem]:
        """The domains' problems on ``trace``; ``problem`` makes one from a domain's requests and their steps.

        Each domain gets fewer steps than a solve of its own would: together they have four times as many.
        """
        running = self.level.settings.max_running_requests
        factor = max(min(1.0, _STEPS_TOGETHER / len(self.names)), LEAST_STEPS / decode_steps(running))
        return {
            name: problem(part, Replays(part, seed, self.prefill_from, step_factor=factor))
            for name, part in self._parts(trace).items()
        }

    def costs(self, trace: Trace, seed: int) -> dict[str, LevelCosts]:
        """What the domains' steps on ``trace`` cost, as many as an evaluation takes."""
        return {
            name: Replays(part, seed, self.prefill_from, step_factor=EVALUATION_STEPS).costs(
                self.model, self.cost, self.level, self.workload, self.tp
            )
            for name, part in self._parts(trace).items()
        }

    def _parts(self, trace: Trace) -> dict[str, Trace]:
        assert isinstance(trace, TokenTrace)  # `robust_domains` refuses others
        return {name: tokens_where(trace, of_domain(trace, name)) for name in self.names}
