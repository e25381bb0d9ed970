"""Measured against predicted with both sides at once: hot experts on the GPU while cold ones run on the CPU."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from placer.datasheet import datasheet_of_device
from placer.errors import MissingComponentError
from placer.kernels.backends import choose_gpu_backend
from placer.kernels.expert_shape import ExpertShape
from placer.model.spec import GPU_FORMAT, ModelSpec
from placer.placement import PlacementDocument
from placer.profiler.fit import ErrorFigures
from placer.profiler.profile import Profile
from placer.profiler.replay import replay_decode
from placer.profiler.timing.joined_step import JoinedStep, joined_steps
from placer.profiler.timing.joined_timing import JoinedSpec, TimedJoinedStep, longest_first, time_joined
from placer.profiler.trace.split import split_requests
from placer.profiler.trace.trace import Trace
from placer.replays import SPLIT_SHARES
from placer.sampling import decode_steps

WORST = 5
"""Layer-steps listed with the largest errors."""


@dataclass(frozen=True)
class JoinedVerification:
    """Both sides of a placement's layers, run and predicted; or why they were not.

    Attributes
    ----------
    timed
        Every layer-step that was run; empty where none was.
    layers
        The checkpoint's index of each MoE layer.
    repeats, kernels
        Runs of each, and what ran.
    not_run
        Why nothing was run, or None.
    """

    timed: tuple[TimedJoinedStep, ...]
    layers: tuple[int, ...]
    repeats: int = 0
    kernels: str = ""
    not_run: str | None = None

    @property
    def errors(self) -> ErrorFigures | None:
        """Relative errors of the predictions; None where nothing was run."""
        if not self.timed:
            return None
        return ErrorFigures.of(np.array([each.error for each in self.timed]))

    def document(self) -> dict[str, Any]:
        """The ``hot_side`` section of the ``verify --json`` document."""
        errors = self.errors
        if errors is None:
            return {"run": False, "reason": self.not_run}
        return {
            "run": True,
            "layer_steps": len(self.timed),
            "measured_us": float(np.mean([each.measured_us for each in self.timed])),
            "predicted_us": float(np.mean([each.predicted_us for each in self.timed])),
            "mape": errors.mape,
            "p90_error": errors.p90_error,
            "bias": errors.bias,
            "hot_bound_share": float(np.mean([each.hot_us > each.cold_us for each in self.timed])),
            "repeats": self.repeats,
            "kernels": self.kernels,
            "worst": [
                {
                    "step": each.joined_step.step,
                    "layer": self.layers[each.joined_step.layer],
                    "measured_us": each.measured_us,
                    "hot_us": each.hot_us,
                    "cold_us": each.cold_us,
                    "error": each.error,
                }
                for each in longest_first(self.timed)[:WORST]
            ],
        }


def hot_side_problem(model: ModelSpec, profile: Profile) -> str | None:
    """Why hot experts cannot be run here for ``profile``, or None."""
    if not torch.cuda.is_available():
        return "no CUDA device"
    if model.expert_format["gpu"] != GPU_FORMAT:
        return f"no kernel here computes experts in {model.expert_format['gpu']}"
    device = torch.cuda.get_device_name(0)
    sheet = datasheet_of_device(device)
    if sheet is None or sheet.name != profile.gpu.name:
        return f"the profile's GPU is {profile.gpu.name}, this machine has {device}"
    try:
        choose_gpu_backend(_hot_backend(profile), _hot_shape(profile))
    except MissingComponentError as error:
        return error.what
    return None


def verify_joined(
    placement: PlacementDocument,
    model: ModelSpec,
    trace: Trace,
    profile: Profile,
    *,
    layer_steps: int,
    max_seconds: float,
    seed: int,
    resident_bytes: int | None = None,
    progress: Callable[[str, float], None] = lambda _text, _share: None,
) -> JoinedVerification:
    """Run layer-steps of held-out requests with hot experts on the GPU and cold ones on the CPU at once.

    Placement, trace and profile are taken to have passed `placer.verification.verify`. Where there is no GPU that
    the profile speaks of, or a kernel crashes, hangs or returns wrong numbers, the answer says so.

    Raises
    ------
    BadInputError
        When the layer-steps do not fit into the time.
    """
    layers = tuple(model.moe_layers)
    if (problem := hot_side_problem(model, profile)) is not None:
        return JoinedVerification((), layers, not_run=problem)
    _, _, reporting = split_requests(trace, SPLIT_SHARES, seed=seed)
    running = placement.kv.max_running_requests
    steps = replay_decode(reporting, running, decode_steps(running), seed=seed + 2)
    chosen = joined_steps(steps, placement.hot_mask(), seed=seed)[:layer_steps]
    if not chosen:
        return JoinedVerification((), layers, not_run="no layer-step gives both sides anything to do")
    try:
        spec = joined_spec(profile, chosen=tuple(chosen), max_seconds=max_seconds, seed=seed)
        timed, repeats, kernels = time_joined(
            replace(spec, resident_bytes=resident_bytes),
            profile.kernel_cost_model(),
            lambda done: progress(f"verify: {done.stage}", done.done / max(1, done.total)),
        )
    except MissingComponentError as error:
        # What was found of the cold side stays worth telling.
        return JoinedVerification((), layers, not_run=error.what)
    return JoinedVerification(timed, layers, repeats, kernels)


def joined_spec(
    profile: Profile, *, chosen: tuple[JoinedStep, ...], max_seconds: float, seed: int
) -> JoinedSpec:
    """The kernels, threads and shapes of ``profile`` on ``chosen`` layer-steps."""
    backend, _ = choose_gpu_backend(_hot_backend(profile), _hot_shape(profile))
    return JoinedSpec(
        device="cuda",
        cold_backend=profile.cpu.backend,
        threads=profile.cpu.threads,
        subpools=profile.cpu.numa_nodes,
        cold_shape=profile.cpu.shape,
        hot_backend=backend.name,
        hot_shape=_hot_shape(profile),
        steps=chosen,
        seed=seed,
        max_seconds=max_seconds,
    )


def _hot_backend(profile: Profile) -> str:
    return profile.gpu.kernel.backend if profile.gpu.kernel is not None else "auto"


def _hot_shape(profile: Profile) -> ExpertShape:
    """One GPU's share of the experts."""
    shape = profile.cpu.shape
    return replace(shape, expert_intermediate_size=shape.expert_intermediate_size // profile.tp)
