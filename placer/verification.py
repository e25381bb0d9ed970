"""Measured against predicted: the real kernel runs a placement's cold side on steps of held-out requests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from placer.errors import BadInputError
from placer.matching import check_matching
from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument
from placer.profiler.fit import ErrorFigures
from placer.profiler.profile import Profile
from placer.profiler.replay import replay_decode
from placer.profiler.timing.layer_timing import TimedLayerStep, cold_layer_steps, time_layer_steps
from placer.profiler.trace.split import split_requests
from placer.profiler.trace.trace import Trace
from placer.sampling import decode_steps
from placer.solve import SPLIT_SHARES

KERNELS_ALONE = (
    "kernels alone are compared: the profile's calibration, which is of a whole server, is left out"
)
WORST = 10
"""Layer-steps listed with the largest errors."""


@dataclass(frozen=True)
class VerifyRequest:
    """How to verify.

    Attributes
    ----------
    layer_steps
        Layer-steps to run, at most.
    running
        Running requests of the steps; None for the placement's own.
    max_seconds
        Wall time of the run.
    seed
        Draws requests, steps, layers and experts.
    """

    layer_steps: int = 200
    running: int | None = None
    max_seconds: float = 120.0
    seed: int = 0


@dataclass(frozen=True)
class Verification:
    """The cold side of a placement, run and predicted.

    Attributes
    ----------
    running
        Running requests of the steps.
    timed
        Every layer-step that was run, with checkpoint layer indices in `layers`.
    layers
        The checkpoint's index of each MoE layer.
    errors
        Relative errors of the predictions against the lower quartile.
    median_errors
        The same against the median.
    repeats, kernel
        Samples of each layer-step; kernel, code path, threads.
    approximate
        What the replay assumed about the trace, or None.
    quiet_warning, notes
        Whether the machine was busy; what gave way to the wall time.
    """

    running: int
    timed: tuple[TimedLayerStep, ...]
    layers: tuple[int, ...]
    errors: ErrorFigures
    median_errors: ErrorFigures
    repeats: int
    kernel: str
    approximate: str | None
    quiet_warning: str | None
    notes: tuple[str, ...]

    @property
    def measured_us(self) -> float:
        """Mean lower quartile of a layer-step."""
        return float(np.mean([each.p25_us for each in self.timed]))

    @property
    def predicted_us(self) -> float:
        """Mean prediction of a layer-step."""
        return float(np.mean([each.predicted_us for each in self.timed]))

    def worst(self) -> list[TimedLayerStep]:
        """The layer-steps with the largest errors, largest first."""
        return sorted(self.timed, key=lambda each: -abs(each.error))[:WORST]

    def document(self) -> dict[str, Any]:
        """The ``verify --json`` document."""
        return {
            "steps": len({each.layer_step.step for each in self.timed}),
            "layers": len({each.layer_step.layer for each in self.timed}),
            "layer_steps": len(self.timed),
            "concurrency": self.running,
            "measured_us": self.measured_us,
            "predicted_us": self.predicted_us,
            "mape": self.errors.mape,
            "p90_error": self.errors.p90_error,
            "bias": self.errors.bias,
            "median": {
                "mape": self.median_errors.mape,
                "p90_error": self.median_errors.p90_error,
                "bias": self.median_errors.bias,
            },
            "worst": [
                {
                    "step": each.layer_step.step,
                    "layer": self.layers[each.layer_step.layer],
                    "cold_experts": len(each.layer_step.rows),
                    "rows": sum(each.layer_step.rows),
                    "measured_us": each.p25_us,
                    "median_us": each.p50_us,
                    "predicted_us": each.predicted_us,
                    "error": each.error,
                }
                for each in self.worst()
            ],
            "repeats": self.repeats,
            "side": "cold",
            "kernel": self.kernel,
            "approximate": self.approximate,
            "quiet_warning": self.quiet_warning,
            "notes": list(self.notes),
        }


def verify(
    placement: PlacementDocument,
    model: ModelSpec,
    trace: Trace,
    profile: Profile,
    request: VerifyRequest,
    *,
    resident_bytes: int | None = None,
    progress: Callable[[str, float], None] = lambda _text, _share: None,
) -> Verification:
    """Run cold layer-steps of the reporting requests of ``trace`` and compare them with the cost model.

    A measured layer-step is the lower quartile of at least nine interleaved repeats, each on expert weights
    that are not in the cache.

    Raises
    ------
    BadInputError
        When trace, profile or placement belong to another model, method or machine, or no expert is cold.
    MissingComponentError
        When the kernel cannot run, crashes or hangs.
    """
    check_matching(placement, model, profile, trace)
    if placement.cpu_method != profile.cpu.method:
        raise BadInputError(
            f"the placement is for CPU method {placement.cpu_method}, the profile timed {profile.cpu.method}",
            "give the profile that the placement was solved with",
        )
    for flag, value in (("--layer-steps", request.layer_steps), ("--running", request.running)):
        if value is not None and value < 1:
            raise BadInputError(f"{flag} is {value}", "give a number from 1 on")
    running = request.running or placement.kv.max_running_requests
    _, _, reporting = split_requests(trace, SPLIT_SHARES, seed=request.seed)
    steps = replay_decode(reporting, running, decode_steps(running), seed=request.seed + 2)
    timings = time_layer_steps(
        cold_layer_steps(steps, placement.hot_mask(), seed=request.seed),
        profile.cpu,
        most=request.layer_steps,
        max_seconds=request.max_seconds,
        seed=request.seed,
        resident_bytes=resident_bytes,
        progress=lambda done: progress(f"verify: {done.stage}", done.done / max(1, done.total)),
    )
    timed = timings.timed
    predicted = np.array([each.predicted_us for each in timed])
    return Verification(
        running=running,
        timed=timed,
        layers=tuple(model.moe_layers),
        errors=ErrorFigures.of(predicted / np.array([each.p25_us for each in timed]) - 1.0),
        median_errors=ErrorFigures.of(predicted / np.array([each.p50_us for each in timed]) - 1.0),
        repeats=timings.repeats,
        kernel=f"{profile.cpu.backend} {profile.cpu.method}, {profile.cpu.variant}, {profile.cpu.threads} thread(s)",
        approximate=steps.approximate,
        quiet_warning=timings.quiet_warning,
        notes=(*timings.notes, *(() if profile.calibration is None else (KERNELS_ALONE,))),
    )
