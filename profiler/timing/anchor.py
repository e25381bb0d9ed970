"""Anchors: calls of a profile that are timed again later, to see whether the machine still runs at its speed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placer.profiler.cost import Regime
from placer.profiler.datasheet_cpu import CpuSide, DatasheetCpu
from placer.profiler.timing.call import Call, Role

FEWEST, MOST = 3, 8
"""Anchors of a regime."""
STEPS_PER_ANCHOR = 3
"""Layer-steps for every anchor between those limits: anchors are to take no more than a fraction of a run."""
DRIFT_LIMIT = 0.03
"""A machine whose anchors moved by more than this is not the one that was profiled."""


@dataclass(frozen=True)
class Anchor:
    """A call and its time (lower quartile) when the machine was profiled."""

    call: Call
    profiled_us: float


@dataclass(frozen=True)
class RegimeDrift:
    """How the machine changed in one regime since it was profiled.

    Attributes
    ----------
    min_tokens, max_tokens
        The regime's range of tokens of a call.
    anchors
        Calls that were timed again.
    drift
        Median over them of time now / time then, minus 1: -0.06 is a machine that needs 6 % less time. 0
        without anchors.
    spread
        Half the distance between the quartiles of the same ratios: how far anchors disagree.
    """

    min_tokens: int
    max_tokens: int | None
    anchors: int
    drift: float
    spread: float


def anchors(kernel: CpuSide, steps_us: Mapping[Regime, Sequence[float]]) -> tuple[Anchor, ...]:
    """The points of the profile that take about as long as the layer-steps of a run.

    ``steps_us`` holds predicted times by regime of ``kernel``; a regime without any has no anchors. A machine
    does not slow all calls alike (few experts wait for memory, many rows for arithmetic), so what is timed
    again is as alike to the steps as the profile has. Every timed profile has them, also one of an earlier version.
    """
    if isinstance(kernel, DatasheetCpu):
        return ()
    chosen: list[Anchor] = []
    for regime, times_us in steps_us.items():
        if not times_us:
            continue
        like_us = float(np.median(times_us))
        usable = [
            point for point in kernel.points if point.rows and kernel.cost.regime(point.tokens) is regime
        ]
        usable.sort(key=lambda point: abs(np.log(point.p25_us / like_us)))
        count = min(max(len(times_us) // STEPS_PER_ANCHOR, FEWEST), MOST)
        chosen += [
            Anchor(Call(point.rows, point.tokens, Role.GRID, "anchor"), point.p25_us)
            for point in usable[:count]
        ]
    return tuple(chosen)


def regime_drifts(
    kernel: CpuSide, profiled: Sequence[Anchor], now_us: Mapping[Call, float]
) -> tuple[RegimeDrift, ...]:
    """The drift of every regime of ``kernel`` from the lower quartiles that anchors have now."""
    drifts = []
    for regime in kernel.cost.regimes:
        ratios = [
            now_us[anchor.call] / anchor.profiled_us
            for anchor in profiled
            if anchor.call in now_us and kernel.cost.regime(anchor.call.tokens) is regime
        ]
        low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75)) if ratios else (1.0, 1.0, 1.0)
        drifts.append(
            RegimeDrift(
                min_tokens=regime.min_tokens,
                max_tokens=regime.max_tokens,
                anchors=len(ratios),
                drift=float(middle) - 1.0,
                spread=float(high - low) / 2,
            )
        )
    return tuple(drifts)
