"""Profile the GPU's side: one GPU's share of the experts, timed inside CUDA graphs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from placer.errors import BadInputError, MissingComponentError
from placer.kernels.backends import AUTO, Backend, choose_gpu_backend
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.steps import Steps
from placer.profiler.timing.campaign import Progress, time_campaign
from placer.profiler.timing.cpu_profile import MAX_SECONDS
from placer.profiler.timing.grid import trace_calls
from placer.profiler.timing.kernel_profile import KernelProfile, kernel_profile
from placer.profiler.timing.spec import CampaignSpec


def profile_gpu(
    shape: ExpertShape,
    tp: int = 1,
    *,
    backend: str = AUTO,
    heldout_steps: Steps | None = None,
    max_seconds: float = MAX_SECONDS,
    seed: int = 0,
    keep_samples: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> KernelProfile:
    """Time and fit the GPU experts of ``shape`` under tp: each GPU holds I/tp of every expert.

    Parameters are those of `profile_cpu`.

    Raises
    ------
    BadInputError
        When ``tp`` does not divide the expert width, the steps are not of this shape, or time is too short.
    MissingComponentError
        When there is no GPU that a kernel runs on, or the kernel crashes, hangs or returns wrong numbers.
    """
    if shape.expert_intermediate_size % tp:
        raise BadInputError(
            f"expert width {shape.expert_intermediate_size} does not divide by tp {tp}", "choose another --tp"
        )
    share = replace(shape, expert_intermediate_size=shape.expert_intermediate_size // tp)
    held_out = trace_calls(share, heldout_steps, seed) if heldout_steps is not None else ()
    failed: dict[Backend, str] = {}
    while True:
        chosen, reason = choose_gpu_backend(backend, share, failed)
        spec = CampaignSpec(
            device="gpu",
            backend=chosen.name,
            threads=1,
            subpools=1,
            shape=share,
            seed=seed,
            max_seconds=max_seconds,
            extra_calls=held_out,
        )
        try:
            samples = time_campaign(spec, progress, keep_samples=keep_samples)
        except MissingComponentError as error:
            if backend != AUTO:
                raise
            failed[chosen] = error.what
            continue
        notes = tuple(f"{kernel.name} was tried and failed: {what}" for kernel, what in failed.items())
        return kernel_profile(spec, samples, reason, notes)
