"""Predicted against the runtime's own timing: sglang-kt's log of MoE layers, no kernel run here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from placer.kt_log_figures import TimedLayer, timed_layers
from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument
from placer.placement_times import PlacementTimes
from placer.planned_level import planned_level, planned_workload
from placer.profiler.factor import UNCALIBRATED, Factors
from placer.profiler.fit import ErrorFigures
from placer.profiler.kt_timing_log import KtTiming, KtTimingLog
from placer.profiler.profile import Profile
from placer.profiler.profile_use import check_profile_matches
from placer.profiler.trace.importing import check_trace_of
from placer.profiler.trace.split import split_requests
from placer.profiler.trace.trace import Trace
from placer.replays import EVALUATION_SEED, SPLIT_SHARES, Replays

STAGES: tuple[tuple[str, Callable[[KtTiming], float]], ...] = (
    ("submit", lambda call: call.submit_us),
    ("mask", lambda call: call.mask_us),
    ("gpu", lambda call: call.gpu_us),
    ("sync", lambda call: call.sync_us),
    ("merge", lambda call: call.merge_us),
)
WORST = 10


@dataclass(frozen=True)
class RuntimeLayer:
    """A layer's calls of one size in the log, beside its replayed layer-steps.

    Attributes
    ----------
    layer, kind, tokens, calls
        Checkpoint index; decode or prefill; tokens of a call; calls in the log.
    measured_us, predicted_us
        Median of the whole call; mean over the replayed layer-steps.
    hot_us, cold_us, transfer_us
        Predicted parts: either side, the cold one without its copies.
    stages_us
        Median of each of the log's stages.
    cold_ends_last
        Whether the log shows the cold side ending after the hot one.
    """

    layer: int
    kind: str
    tokens: int
    calls: int
    measured_us: float
    predicted_us: float
    hot_us: float
    cold_us: float
    transfer_us: float
    stages_us: dict[str, float]
    cold_ends_last: bool

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted_us / self.measured_us - 1.0


@dataclass(frozen=True)
class RuntimeVerification:
    """What the runtime timed, and what was predicted for it.

    Attributes
    ----------
    layers
        By layer and size.
    errors
        Relative errors over them.
    applied
        The factors of the profile's calibration that the prediction holds.
    steps
        Calls of the layer that the log holds most of.
    notes
        What the comparison assumes.
    """

    layers: tuple[RuntimeLayer, ...]
    errors: ErrorFigures
    applied: Factors
    steps: int
    log: str
    notes: tuple[str, ...]

    def worst(self) -> list[RuntimeLayer]:
        """The layers with the largest errors, largest first."""
        return sorted(self.layers, key=lambda each: -abs(each.error))[:WORST]

    def document(self) -> dict[str, Any]:
        """The ``verify --kt-log --json`` document: the fields of ``verify``, and the log's stages."""
        return {
            "steps": self.steps,
            "layers": len({each.layer for each in self.layers}),
            "layer_steps": sum(each.calls for each in self.layers),
            "measured_us": float(np.mean([each.measured_us for each in self.layers])),
            "predicted_us": float(np.mean([each.predicted_us for each in self.layers])),
            "mape": self.errors.mape,
            "p90_error": self.errors.p90_error,
            "bias": self.errors.bias,
            "worst": [
                {
                    "layer": each.layer,
                    "kind": each.kind,
                    "tokens": each.tokens,
                    "calls": each.calls,
                    "measured_us": each.measured_us,
                    "predicted_us": each.predicted_us,
                    "predicted_hot_us": each.hot_us,
                    "predicted_cold_us": each.cold_us,
                    "predicted_transfer_us": each.transfer_us,
                    "stages_us": each.stages_us,
                    "cold_ends_last": each.cold_ends_last,
                    "error": each.error,
                }
                for each in self.worst()
            ],
            "side": "runtime",
            "log": self.log,
            "calibration": str(self.applied),
            "notes": list(self.notes),
        }


def verify_runtime(
    placement: PlacementDocument,
    model: ModelSpec,
    trace: Trace,
    profile: Profile,
    log: KtTimingLog,
    *,
    seed: int = 0,
) -> RuntimeVerification:
    """Compare the layers that ``log`` times with the cost model, calibrated where the profile is.

    The log does not say which experts its tokens chose: medians of its calls stand against means over replayed
    layer-steps of the trace's reporting requests, by layer and tokens of a call.

    Raises
    ------
    BadInputError
        When trace, profile, placement or log belong to another model, or the log holds too few calls.
    """
    placement.check_model(model)
    check_profile_matches(profile, model, tp=placement.tp)
    check_trace_of(trace, model)
    _, _, reporting = split_requests(trace, SPLIT_SHARES, seed=seed)
    times = PlacementTimes(
        model,
        profile.kernel_cost_model(),
        placement.hot_mask(),
        Replays(reporting, seed + 2 * EVALUATION_SEED, "decode"),
        planned_level(placement).settings,
        planned_workload(placement),
        placement.tp,
    )
    factors = UNCALIBRATED if profile.calibration is None else profile.calibration.factors
    timed = timed_layers(log, placement, times)
    layers = tuple(_layer(each, factors) for each in timed)
    return RuntimeVerification(
        layers=layers,
        errors=ErrorFigures.of(np.array([each.error for each in layers])),
        applied=factors,
        steps=max(call.step for call in log.calls),
        log=str(log.path),
        notes=(*profile.calibration_notes, *log.notes, *times.notes()),
    )


def _layer(timed: TimedLayer, factors: Factors) -> RuntimeLayer:
    sides, row = timed.sides, timed.row
    return RuntimeLayer(
        layer=timed.layer,
        kind=timed.kind.value,
        tokens=timed.tokens,
        calls=len(timed.calls),
        measured_us=timed.median_us(lambda call: call.total_us),
        predicted_us=timed.predicted_us(factors),
        hot_us=factors.hot * float(sides.hot_us[:, row].mean()),
        cold_us=factors.cold * float(sides.cold_us[:, row].mean()),
        transfer_us=factors.transfer * sides.transfer_us,
        stages_us={name: timed.median_us(stage) for name, stage in STAGES},
        cold_ends_last=timed.cold_is_seen,
    )
