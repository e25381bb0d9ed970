"""Anchors: calls of a profile that are timed again later, to see whether the machine still runs at its speed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placer.profiler.cost import Regime
from placer.profiler.timing.call import Call, Role
from placer.profiler.timing.kernel_profile import KernelProfile, TimedPoint

ANCHOR_ROWS = (1, 2, 4, 8)
"""Rows per expert of anchors: what decode steps hold."""
LEAST_ACTIVE = 4
"""Active experts of an anchor, at least: the more, the less one sample of it depends on chance."""
FEWEST, MOST = 4, 8
"""Anchors of a regime."""
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


def anchors(kernel: KernelProfile, seconds: float, rounds: int) -> tuple[Anchor, ...]:
    """`FEWEST` to `MOST` grid calls of every regime, the cheapest first, ``rounds`` of which fit into ``seconds``.

    They are points that the profile holds anyway, so a profile of any age has them.
    """
    chosen: list[Anchor] = []
    share_us = seconds * 1e6 / (rounds * len(kernel.cost.regimes))
    for regime in kernel.cost.regimes:
        spent_us = 0.0
        for number, point in enumerate(sorted(_usable(kernel, regime), key=lambda point: point.p25_us)):
            spent_us += point.p25_us
            if number >= MOST or (number >= FEWEST and spent_us > share_us):
                break
            chosen.append(Anchor(Call(point.rows, point.tokens, Role.GRID, "anchor"), point.p25_us))
    return tuple(chosen)


def _usable(kernel: KernelProfile, regime: Regime) -> list[TimedPoint]:
    return [
        point
        for point in kernel.points
        if point.role == Role.GRID
        and point.source in ("rows", "active")
        and len(point.rows) >= min(LEAST_ACTIVE, kernel.shape.experts)
        and point.rows[0] in ANCHOR_ROWS
        and kernel.cost.regime(point.tokens) is regime
    ]


def regime_drifts(
    kernel: KernelProfile, profiled: Sequence[Anchor], now_us: Mapping[Call, float]
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
