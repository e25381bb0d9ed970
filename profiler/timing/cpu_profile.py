"""Profile the CPU's side: choose a kernel, time it, fit it."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from placer.errors import MissingComponentError
from placer.kernels.backends import AUTO, Backend, choose_cpu_backend
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.steps import Steps
from placer.profiler.timing.campaign import Progress, time_campaign
from placer.profiler.timing.grid import decode_call, trace_calls
from placer.profiler.timing.kernel_profile import KernelProfile, kernel_profile
from placer.profiler.timing.spec import CampaignSpec
from placer.profiler.timing.subpools import default_subpools
from placer.profiler.timing.thread_sweep import fastest, sweep_threads
from placer.profiler.timing.thread_timing import ThreadTiming

MAX_SECONDS = 90.0
"""Wall time of a campaign unless the caller says otherwise."""
SWEEP_SHARE, LEAST_SHARE = 0.25, 0.5
"""Parts of it for finding the best thread count, and for what is left to the campaign at least."""


def profile_cpu(
    shape: ExpertShape,
    *,
    backend: str = AUTO,
    threads: int | None = 1,
    heldout_steps: Steps | None = None,
    max_seconds: float = MAX_SECONDS,
    seed: int = 0,
    resident_bytes: int | None = None,
    keep_samples: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> KernelProfile:
    """Time and fit the CPU experts of ``shape``.

    Parameters
    ----------
    backend
        What `choose_cpu_backend` takes. With "auto" a kernel that fails when it is run, or returns wrong
        numbers, gives way to the next, and a note says so.
    threads
        Kernel threads; None tries sensible counts on a decode call first and takes the best.
    heldout_steps
        Steps of a real trace to judge the fit on, beside made-up ones.
    max_seconds
        Wall time; fewer rounds, then fewer calls, where it is short.
    resident_bytes
        Distinct expert weights to draw from; None for three times the last-level cache.
    keep_samples
        Folder for raw samples, which an interrupted campaign goes on from (see `time_campaign`).

    Raises
    ------
    BadInputError
        When the steps or kept samples are not of this shape, or the time is too short to fit anything.
    MissingComponentError
        When the kernel cannot run, crashes, hangs or returns wrong numbers.
    """
    held_out = trace_calls(shape, heldout_steps, seed) if heldout_steps is not None else ()
    notes: tuple[str, ...] = ()
    if heldout_steps is not None and not held_out:
        notes = ("no step of the trace is small enough to time, so made-up steps alone judge the fit",)

    def run(kernel: Backend, reason: str, notes: tuple[str, ...]) -> KernelProfile:
        sweep: tuple[ThreadTiming, ...] = ()
        seconds = max_seconds
        if threads is None:
            started = time.monotonic()
            sweep = sweep_threads(
                kernel,
                shape,
                decode_call(shape, held_out, seed),
                max_seconds=SWEEP_SHARE * max_seconds,
                seed=seed,
                resident_bytes=resident_bytes,
                keep_samples=keep_samples,
                progress=progress,
            )
            # Starting a process for every setting takes its time too.
            seconds = max(seconds - (time.monotonic() - started), LEAST_SHARE * max_seconds)
            best = fastest(sweep)
            count, nodes = best.threads, best.subpools
        else:
            count = threads
            nodes, node_notes = default_subpools(kernel, shape, threads)
            notes = (*notes, *node_notes)
        spec = CampaignSpec(
            device="cpu",
            backend=kernel.name,
            threads=count,
            subpools=nodes,
            shape=shape,
            seed=seed,
            max_seconds=seconds,
            extra_calls=held_out,
            resident_bytes=resident_bytes,
        )
        samples = time_campaign(spec, progress, keep_samples=keep_samples)
        return replace(kernel_profile(spec, samples, reason, notes), sweep=sweep)

    failed: dict[Backend, str] = {}
    while True:
        chosen, reason = choose_cpu_backend(backend, shape, threads or 1, failed)
        try:
            return run(chosen, reason, notes)
        except MissingComponentError as error:
            if backend != AUTO:
                raise
            failed[chosen] = error.what
            notes = (*notes, f"{chosen.name} was tried and failed: {error.what}")
