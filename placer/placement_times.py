"""Times of a placement's steps of any size, under any factors of a calibration."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placer.hbm import ServerSettings
from placer.level_cost import step_costs
from placer.model.spec import ModelSpec
from placer.profiler.cost import CostModel
from placer.profiler.factor import Factors
from placer.profiler.steps import StepKind
from placer.replays import Replays
from placer.solvers.problem import Mask
from placer.workload import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_GRID = 6
"""Sizes of a kind of step that are replayed; between them times are interpolated."""


@dataclass(frozen=True)
class SideTimes:
    """The parts of S steps of one kind and size, as the kernels' measurements predict them.

    Attributes
    ----------
    hot_us, cold_us
        float [S, L], either side of every layer, the cold one without its copies.
    transfer_us
        Copies of a layer to the host and back.
    base_us
        Time of a step outside the routed experts.
    """

    hot_us: Floats
    cold_us: Floats
    transfer_us: float
    base_us: float

    def layer_us(self, factors: Factors) -> Floats:
        """Time of every layer: float [S, L]."""
        cold = factors.cold * self.cold_us + factors.transfer * self.transfer_us
        return np.asarray(np.maximum(factors.hot * self.hot_us, cold))

    def step_us(self, factors: Factors) -> float:
        """Mean time of a step."""
        layers = float(self.layer_us(factors).sum(axis=1).mean())
        return factors.base * self.base_us + factors.step_us + layers


class PlacementTimes:
    """Steps of ``hot`` (bool [L, E]) on a server of ``settings``, replayed once for each kind and size.

    ``cost`` is what the kernels' measurements say, without a calibration.
    """

    def __init__(
        self,
        model: ModelSpec,
        cost: CostModel,
        hot: Mask,
        replays: Replays,
        settings: ServerSettings,
        workload: Workload,
        tp: int,
    ) -> None:
        self._model = model
        self._rates = cost.rates
        self._kernels = replace(cost, rates=cost.rates.with_transfers(0.0))
        self._hot = hot
        self._settings = settings
        self._workload = workload
        self._tp = tp
        self._replays = replays
        self._sides: dict[tuple[StepKind, int], SideTimes] = {}
        self._approximate: dict[tuple[StepKind, int], str | None] = {}
        self._extrapolated: set[tuple[StepKind, int]] = set()

    def sides(self, kind: StepKind, size: int) -> SideTimes:
        """Steps of ``size`` requests, or chunks of ``size`` tokens."""
        if (kind, size) not in self._sides:
            steps = self._replays.decode(size) if kind is StepKind.DECODE else self._replays.prefill(size)
            if steps is None:
                raise ValueError("the replay leaves prompts out")
            costs = step_costs(self._model, self._kernels, steps, self._settings, self._workload, self._tp)
            transfer_us = self._rates.transfer_call_us + self._rates.transfer_token_us * size
            self._sides[kind, size] = SideTimes(*costs.side_us(self._hot), transfer_us, costs.base_us)
            self._approximate[kind, size] = steps.approximate
            if costs.extrapolated_share:
                self._extrapolated.add((kind, size))
        return self._sides[kind, size]

    def curve(self, kind: StepKind, grid: Sequence[int], factors: Factors) -> Callable[[Ints], Floats]:
        """Mean time by size in microseconds, interpolated between the ascending sizes ``grid``, level beyond them."""
        times = [self.sides(kind, size).step_us(factors) for size in grid]
        return lambda wanted: np.interp(wanted, grid, times)

    def extrapolates(self, kind: StepKind) -> bool:
        """Whether any steps of ``kind`` so far lie beyond the timed range."""
        return any(found is kind for found, _ in self._extrapolated)

    def notes(self, largest: Mapping[StepKind, int] | None = None) -> tuple[str, ...]:
        """What the replayed steps assume, and which sizes the kernels were not timed at.

        Of sizes up to the ``largest`` of a kind alone, where larger ones were replayed and did not run.
        """
        sizes = [
            (kind, size)
            for kind, size in sorted(self._sides)
            if largest is None or size <= largest.get(kind, 0)
        ]
        assumed = dict.fromkeys(text for each in sizes if (text := self._approximate[each]) is not None)
        beyond = [
            f"{kind.value} steps of {size}" for kind, size in sizes if (kind, size) in self._extrapolated
        ]
        said = (f"extrapolated beyond the timed range: {', '.join(beyond)}",) if beyond else ()
        return (*assumed, *said)


def size_grid(sizes: Ints, weights: Ints) -> list[int]:
    """At most `_GRID` of ``sizes``, ascending: the ends, and those that weigh most; 1 where there are none."""
    if not sizes.size:
        return [1]
    distinct, place = np.unique(sizes, return_inverse=True)
    weight = np.bincount(place, weights=weights)
    heaviest = np.argsort(-weight, kind="stable")[: _GRID - 2]
    return sorted({int(distinct[0]), int(distinct[-1]), *(int(size) for size in distinct[heaviest])})
