"""sglang-kt's own timing of MoE layers beside the cost model: both sides, copies, and the whole layer."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from placer.errors import BadInputError
from placer.measured_figure import MeasuredFigure
from placer.placement import PlacementDocument
from placer.placement_times import PlacementTimes, SideTimes
from placer.profiler.factor import UNCALIBRATED, FactorName, Factors
from placer.profiler.kt_timing_log import CURE, KtTiming, KtTimingLog
from placer.profiler.steps import StepKind

LEAST_CALLS = 3
"""Calls of one layer and size below which no median is taken."""
MOST_SIZES = 8
"""Sizes of calls that are compared: those with most calls."""
LAUNCH_SHARE = 0.25
"""Share of the prediction below which a log holds the time to start the work, not to do it."""


@dataclass(frozen=True)
class TimedLayer:
    """The calls of one layer and size.

    Attributes
    ----------
    layer, row
        Index of the layer in the checkpoint, and among the MoE layers.
    kind, tokens
        A decode step of so many requests, or a prefill chunk of so many tokens.
    calls
        What the log holds of it.
    sides
        What was predicted.
    has_hot
        Whether the placement keeps an expert of the layer hot.
    """

    layer: int
    row: int
    kind: StepKind
    tokens: int
    calls: tuple[KtTiming, ...]
    sides: SideTimes
    has_hot: bool

    @property
    def name(self) -> str:
        """Layer and size."""
        return f"layer {self.layer}, {self.kind.value} of {self.tokens}"

    def median_us(self, stage: Callable[[KtTiming], float]) -> float:
        """Median of a stage over the calls."""
        return float(np.median([stage(call) for call in self.calls]))

    def predicted_us(self, factors: Factors = UNCALIBRATED) -> float:
        """Mean of the layer over the replayed steps."""
        return float(self.sides.layer_us(factors)[:, self.row].mean())

    @property
    def cold_is_seen(self) -> bool:
        """Whether the cold side ended last in most calls."""
        return sum(call.cold_ends_last for call in self.calls) > len(self.calls) / 2


def timed_layers(
    log: KtTimingLog, placement: PlacementDocument, times: PlacementTimes
) -> tuple[TimedLayer, ...]:
    """The log's calls by layer and size, with their predictions.

    Calls of at most the placement's running requests are taken for decode steps, larger ones for prefill
    chunks. Layers and sizes with fewer than `LEAST_CALLS` calls are left out.

    Raises
    ------
    BadInputError
        When the log is of another model, of larger chunks than the placement allows, holds too few calls, or
        times that only starting the work takes.
    """
    layers = {layer: row for row, layer in enumerate(placement.model.layers)}
    chunk = max(placement.kv.chunked_prefill_size, placement.kv.max_running_requests)
    for call in log.calls:
        if call.layer not in layers:
            raise BadInputError(
                f"log {log.path} times layer {call.layer}, which is no MoE layer of {placement.model.name}",
                "give the log of the server that ran this placement",
            )
        if call.tokens > chunk:
            raise BadInputError(
                f"log {log.path} holds a call of {call.tokens:,} tokens; the placement's chunks have {chunk:,} at most",
                "give the log of the server that ran this placement",
            )
    hot = placement.hot_mask()

    def place(call: KtTiming) -> tuple[int, int]:
        return call.tokens, call.layer

    groups = {key: tuple(calls) for key, calls in groupby(sorted(log.calls, key=place), key=place)}
    groups = {key: calls for key, calls in groups.items() if len(calls) >= LEAST_CALLS}
    sizes: dict[int, int] = {}
    for (tokens, _), calls in groups.items():
        sizes[tokens] = sizes.get(tokens, 0) + len(calls)
    kept = sorted(sizes, key=lambda tokens: -sizes[tokens])[:MOST_SIZES]
    found = []
    for (tokens, layer), calls in groups.items():
        if tokens not in kept:
            continue
        kind = StepKind.DECODE if tokens <= placement.kv.max_running_requests else StepKind.PREFILL
        row = layers[layer]
        found.append(
            TimedLayer(layer, row, kind, tokens, calls, times.sides(kind, tokens), bool(hot[row].any()))
        )
    if not found:
        raise BadInputError(
            f"log {log.path} holds fewer than {LEAST_CALLS} calls of every layer and size", CURE
        )
    ratios = [each.median_us(lambda call: call.total_us) / each.predicted_us() for each in found]
    if float(np.median(ratios)) < LAUNCH_SHARE:
        raise BadInputError(
            f"log {log.path}: a layer takes {np.median(ratios):.0%} of its predicted time, so the log holds the "
            "time to start the work, not to do it",
            CURE,
        )
    return tuple(found)


def kt_log_figures(
    timed: Sequence[TimedLayer], names: Sequence[FactorName] = tuple(FactorName)
) -> tuple[MeasuredFigure, ...]:
    """Stage by stage: what each factor of ``names`` is fitted to, and what checks them, as the whole layer.

    The cold side is what passes after the hand-over to the CPU, where the CPU ends last. One of the two copies, which
    the model takes together, is in the hand-over, the copy back to the GPU is in the cold side.
    """
    return tuple(
        MeasuredFigure(f"{stage}, {each.name}", "us", measured, predicted, len(each.calls), name in names)
        for each in timed
        for stage, measured, predicted, name in _stages(each)
        if measured > 0 and predicted(UNCALIBRATED) > 0
    )


def _stages(
    each: TimedLayer,
) -> Iterator[tuple[str, float, Callable[[Factors], float], FactorName | None]]:
    """(stage, measured, predicted, the factor that is fitted to it, if any) of one layer and size."""
    sides = each.sides
    hot_us, cold_us = float(sides.hot_us[:, each.row].mean()), float(sides.cold_us[:, each.row].mean())

    def one_way(factors: Factors) -> float:
        return factors.transfer * sides.transfer_us / 2

    def hot(factors: Factors) -> float:
        return factors.hot * hot_us

    def cold(factors: Factors) -> float:
        return factors.cold * cold_us + one_way(factors)

    yield "layer", each.median_us(lambda call: call.total_us), each.predicted_us, None
    yield "submit", each.median_us(lambda call: call.submit_us), one_way, FactorName.TRANSFER
    if each.has_hot:
        yield "hot GPU", each.median_us(lambda call: call.gpu_us), hot, FactorName.HOT
    if each.cold_is_seen:
        yield "cold CPU", each.median_us(lambda call: call.after_submit_us), cold, FactorName.COLD
