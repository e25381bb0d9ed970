"""Bands around predicted figures: simulated again with every part of the cost model at its low and high factor."""

from dataclasses import dataclass
from typing import NamedTuple

from placer.serving import ServingFigures


class Band(NamedTuple):
    """A figure, and between what it lies as far as the cost model's own error says."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True)
class FigureBands:
    """Bands of what a user asks first; routing and traffic are taken as known."""

    output_tokens_per_s: Band
    tpot_ms_p50: Band
    tpot_ms_p95: Band
    ttft_ms_p50: Band
    ttft_ms_p95: Band


def figure_bands(fastest: ServingFigures, mid: ServingFigures, slowest: ServingFigures) -> FigureBands:
    """The bands that three simulations span."""

    def band(*figures: float) -> Band:
        # Near a border between regimes a faster server may batch worse: the middle one stays inside.
        return Band(min(figures), figures[1], max(figures))

    every = (fastest, mid, slowest)
    return FigureBands(
        output_tokens_per_s=band(*(each.output_tokens_per_s for each in every)),
        tpot_ms_p50=band(*(each.tpot_ms.p50 for each in every)),
        tpot_ms_p95=band(*(each.tpot_ms.p95 for each in every)),
        ttft_ms_p50=band(*(each.ttft_ms.p50 for each in every)),
        ttft_ms_p95=band(*(each.ttft_ms.p95 for each in every)),
    )
