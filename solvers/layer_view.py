"""The placement problem seen layer by layer, in the weighted form that bounds and searches work on."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placer.solvers.problem import FixedCharge, Mask, PlacementProblem, heaviest_us

Float64s = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LayerView:
    """One problem, layer axis first, every time multiplied by the weight of its step.

    Steps of weight zero are dropped. With the weights multiplied in, the objective is the plain sum
    over layers and steps of max(hot side, cold side), plus ``linear_us``, plus the constant.

    Attributes
    ----------
    hot_us, cold_us
        float64 [L, S, E], weighted.
    hot_fixed_us, cold_fixed_us, cold_idle_us
        float64 [L, S], weighted. The idle cost shows in all-hot layers alone.
    linear_us
        float64 [L, E].
    expert_bytes
        int64 [L].
    budget_bytes
        The budget rounded down to what whole experts can fill: never above the bytes of all `max_hot`.
    fewest, most
        int64 [L], counts of a *mixed* layer, one that is neither all cold nor all hot; a layer whose
        bounds leave no such count has fewest > most.
    may_be_cold, may_be_hot
        bool [L], whether the bounds allow the layer to be all cold, all hot.
    heaviest_factor
        float64 [S], weight of the heaviest cold expert in the cold side; None where it never shows.
    """

    hot_us: Float64s
    cold_us: Float64s
    hot_fixed_us: Float64s
    cold_fixed_us: Float64s
    cold_idle_us: Float64s
    hot_fixed_when: FixedCharge
    cold_fixed_when: FixedCharge
    linear_us: Float64s
    expert_bytes: Ints
    budget_bytes: int
    fewest: Ints
    most: Ints
    may_be_cold: Mask
    may_be_hot: Mask
    heaviest_factor: Float64s | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """(L, S, E): layers, steps of positive weight, experts."""
        L, S, E = self.hot_us.shape
        return L, S, E

    @cached_property
    def magnitude_us(self) -> Float64s:
        """Sum of every cost of a layer, the scale of its rounding error: float64 [L]."""
        sides = self.hot_us.sum(axis=(1, 2)) + self.cold_us.sum(axis=(1, 2))
        fixed = np.abs(self.hot_fixed_us).sum(axis=1) + self.cold_fixed_us.sum(axis=1)
        return np.asarray(sides + fixed + np.abs(self.linear_us).sum(axis=1))

    def cost_us(self, hot: Mask) -> Float64s:
        """Exact cost of every layer under ``hot`` (bool [L, E]), constant excluded: float64 [L]."""
        x = hot.astype(np.float64)[:, :, None]
        hot_side = np.matmul(self.hot_us, x)[:, :, 0]
        cold_side = np.matmul(self.cold_us, 1.0 - x)[:, :, 0]
        if self.heaviest_factor is not None:
            # One layer at a time: memory stays at [S, E].
            for layer, members in enumerate(~hot):
                heaviest = self.heaviest_factor * heaviest_us(self.cold_us[layer], members)
                np.maximum(cold_side[layer], heaviest, out=cold_side[layer])
        hot_side += self.hot_fixed_us * self._charged(self.hot_fixed_when, hot, hot_side)
        charged = self.cold_fixed_us * self._charged(self.cold_fixed_when, ~hot, cold_side)
        cold_side += np.maximum(charged, self.cold_idle_us)
        linear = np.where(hot, self.linear_us, 0.0).sum(axis=1)
        return np.asarray(np.maximum(hot_side, cold_side).sum(axis=1) + linear)

    @staticmethod
    def _charged(when: FixedCharge, members: Mask, side_us: Float64s) -> Float64s:
        # Costs are never negative, so a side has an active member exactly when its sum is above zero.
        if when is FixedCharge.ALWAYS:
            return np.ones_like(side_us)
        if when is FixedCharge.ANY_MEMBER:
            return np.broadcast_to(np.asarray(members.any(axis=1))[:, None], side_us.shape).astype(np.float64)
        return (side_us > 0).astype(np.float64)


def by_layer(problem: PlacementProblem) -> LayerView:
    """Arrange ``problem`` by layer, in float64."""
    _, L, E = problem.shape
    kept = problem.weight > 0
    weight = problem.weight[kept].astype(np.float64)
    fewest = np.clip(problem.min_hot, 0, None).astype(np.int64)
    most = np.clip(problem.max_hot, None, E).astype(np.int64)
    factor = None if problem.heaviest_factor is None else problem.heaviest_factor[kept].astype(np.float64)
    unit = int(np.gcd.reduce(problem.expert_bytes)) if L else 1
    budget = min(int(problem.budget_bytes), int((problem.expert_bytes * np.clip(most, 0, None)).sum()))
    return LayerView(
        hot_us=_weighted(problem.hot_us[kept], weight),
        cold_us=_weighted(problem.cold_us[kept], weight),
        hot_fixed_us=np.ascontiguousarray((problem.hot_fixed_us[kept] * weight[:, None]).T, dtype=np.float64),
        cold_fixed_us=np.ascontiguousarray(
            (problem.cold_fixed_us[kept] * weight[:, None]).T, dtype=np.float64
        ),
        cold_idle_us=np.ascontiguousarray((problem.idle_us[kept] * weight[:, None]).T, dtype=np.float64),
        hot_fixed_when=problem.hot_fixed_when,
        cold_fixed_when=problem.cold_fixed_when,
        linear_us=problem.linear_us.astype(np.float64),
        expert_bytes=problem.expert_bytes.astype(np.int64),
        budget_bytes=budget // unit * unit,
        fewest=np.maximum(fewest, 1),
        most=np.minimum(most, E - 1),
        may_be_cold=fewest == 0,
        may_be_hot=most == E,
        # The heaviest expert is in the sum already: up to a factor of 1 the sum is never shorter.
        heaviest_factor=None if factor is None or not np.any(factor > 1) else factor,
    )


def _weighted(cost_us: NDArray[np.floating], weight: Float64s) -> Float64s:
    S, L, E = cost_us.shape
    arranged = np.empty((L, S, E))
    np.multiply(cost_us.transpose(1, 0, 2), weight[None, :, None], out=arranged)
    return arranged
