"""The placement problems that one part of a trace poses, level by level."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placer.baselines import BASELINES
from placer.hot_bounds import HotBounds
from placer.level import Level
from placer.level_cost import LevelCosts, placement_problem
from placer.model.spec import ModelSpec
from placer.objective import Limit, Weighting, weighed
from placer.profiler.cost import CostModel
from placer.profiler.steps import StepKind
from placer.replays import Replays
from placer.sampling import expected_expert_us, sampling_correction
from placer.solve_request import SolveRequest
from placer.solvers.ilp_model import TimeLimit
from placer.solvers.problem import Mask, PlacementProblem

Expectations = dict[tuple[StepKind, int], tuple[NDArray[np.float64], NDArray[np.float64]]]
"""Expected cost of each expert on either side over the whole part, by kind and tokens of a step."""


@dataclass(frozen=True)
class LevelProblems:
    """What the steps of one part of a trace ask of every level.

    Attributes
    ----------
    counts
        int64 [L, E], selections in the part.
    expected
        Filled as levels are asked for; parts that differ in their steps alone may share it.
    """

    model: ModelSpec
    cost: CostModel
    request: SolveRequest
    limits: HotBounds
    replays: Replays
    counts: NDArray[np.int64]
    expected: Expectations = field(default_factory=dict)

    def costs(self, level: Level) -> LevelCosts:
        """What the part's steps cost at ``level``."""
        return self.replays.costs(self.model, self.cost, level, self.request.workload, self.request.tp)

    def baseline(self, name: str, level: Level) -> Mask:
        """The baseline ``name`` within the limits and the level's room: bool [L, E]."""
        return self.limits.baseline(BASELINES[name], self.counts, level.room_experts)

    def weighed(self, level: Level) -> Weighting:
        """What the request's objective weighs at ``level``."""
        return weighed(self.request.objective, level.settings.max_running_requests)

    def promising_first(self, grid: Iterable[Level]) -> list[Level]:
        """Levels by what the frequency ranking costs at them, so that later ones are cut off early."""

        def frequency_us(level: Level) -> float:
            return self.costs(level).weighted_us(self.baseline("frequency", level), self.weighed(level))

        return sorted(grid, key=frequency_us)

    def time_limit(self, level: Level, limit: Limit, limited: PlacementProblem) -> TimeLimit | None:
        """``limit`` on the steps of the level's own problem; None where that leaves out steps that it counts.

        ``limited`` is the problem that minimises the limit.
        """
        costs = self.costs(level)
        shares = {(part.kind, part.tokens): share for part, share in costs.weighted_parts(limit.weighting)}
        own = [part for part, _ in costs.weighted_parts(self.weighed(level))]
        if not shares.keys() <= {(part.kind, part.tokens) for part in own}:
            return None
        weight = np.concatenate(
            [
                np.full(len(part.hot_us), shares.get((part.kind, part.tokens), 0.0) / len(part.hot_us))
                for part in own
            ]
        )
        return TimeLimit(weight, limited.linear_us, limit.target_us - limited.constant_us)

    def problem(self, level: Level, weighting: Weighting | None = None) -> PlacementProblem:
        """The level's problem, its sampled steps corrected to the whole of the part.

        Minimises what the request's objective weighs, or ``weighting``.
        """
        weighting = self.weighed(level) if weighting is None else weighting
        settings = level.settings
        costs = self.costs(level)
        plan = self.baseline("frequency", level)
        linear_us = np.zeros(plan.shape)
        for part, weight in costs.weighted_parts(weighting):
            key = part.kind, part.tokens
            if key not in self.expected:
                whole = self.replays.whole(part.tokens, part.kind)
                self.expected[key] = expected_expert_us(self.cost, whole)
            linear_us += weight * sampling_correction(part, *self.expected[key], plan)
        return placement_problem(
            self.model,
            costs,
            room_experts=level.room_experts,
            tp=self.request.tp,
            linear_us=linear_us,
            name=f"R={settings.max_running_requests} C={settings.chunk_tokens} KV={settings.kv_dtype}",
            min_hot=self.limits.least,
            max_hot=self.limits.most,
            weighting=weighting,
        )
