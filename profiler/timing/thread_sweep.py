"""Which thread count and NUMA spread run a decode call fastest, each tried in a process of its own."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

from placer.errors import MissingComponentError
from placer.kernels.backends import Backend
from placer.kernels.cores import usable_cores
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.timing.call import Call
from placer.profiler.timing.campaign import Progress, time_campaign
from placer.profiler.timing.samples import ESTIMATOR_QUANTILE
from placer.profiler.timing.spec import CampaignSpec
from placer.profiler.timing.subpools import subpool_counts
from placer.profiler.timing.thread_timing import ThreadTiming
from placer.units import counted

ROUNDS, LEAST_ROUNDS = 15, 5
"""Rounds of the call and its repeats."""
TIE = 0.02
"""Fewer threads win where they are slower by no more than this: the server needs the other cores."""
FAILURES = 2
"""Settings that may fail before the first works: with more it is the kernel, and each may take minutes to tell."""


def thread_counts(cores: int, physical_cores: int) -> tuple[int, ...]:
    """Counts worth trying: quarters of the cores, the physical ones, and all but one, ascending."""
    counts = (cores // 4, cores // 2, 3 * cores // 4, physical_cores, physical_cores - 1, cores - 1, cores)
    return tuple(sorted({min(max(count, 1), cores) for count in counts}))


def settings(kernel: Backend, shape: ExpertShape) -> list[tuple[int, int]]:
    """(threads, subpools) that ``kernel`` accepts here: every count on one node and on all of them."""
    cores = usable_cores()
    physical = min(cores, psutil.cpu_count(logical=False) or cores)
    found = []
    for threads in thread_counts(cores, physical):
        if kernel.problem(shape, threads) is None:
            nodes = subpool_counts(kernel, shape, threads)
            found += [(threads, count) for count in sorted({nodes[0], nodes[-1]})]
    return found


def sweep_threads(
    kernel: Backend,
    shape: ExpertShape,
    call: Call,
    *,
    max_seconds: float,
    seed: int,
    resident_bytes: int | None = None,
    keep_samples: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[ThreadTiming, ...]:
    """Time ``call`` with every one of `settings`; together they take about ``max_seconds``.

    A setting that crashes, hangs or returns wrong numbers is left out with its reason.

    Raises
    ------
    MissingComponentError
        When no setting could be timed, or none of the first `FAILURES`.
    """
    candidates = settings(kernel, shape)
    timings = []
    for index, (threads, subpools) in enumerate(candidates):
        if progress is not None:
            progress(Progress(f"{threads} threads on {counted(subpools, 'node')}", index, len(candidates)))
        spec = CampaignSpec(
            device="cpu",
            backend=kernel.name,
            threads=threads,
            subpools=subpools,
            shape=shape,
            seed=seed,
            max_seconds=max_seconds / len(candidates),
            rounds=ROUNDS,
            min_rounds=LEAST_ROUNDS,
            extra_calls=(call,),
            only_extra=True,
            resident_bytes=resident_bytes,
        )
        try:
            samples = time_campaign(spec, keep_samples=keep_samples)
        except MissingComponentError as error:
            timings.append(ThreadTiming(threads, subpools, None, None, error.what))
            if len(timings) == FAILURES and all(timing.problem for timing in timings):
                break
            continue
        # The anchor of a campaign of one call is that call.
        p25, p50 = np.quantile(
            np.column_stack((samples.times_us, samples.anchor_us)), (ESTIMATOR_QUANTILE, 0.5)
        )
        timings.append(ThreadTiming(threads, subpools, float(p25), float(p50)))
    if not any(timing.problem is None for timing in timings):
        raise MissingComponentError(
            f"no thread count that was tried could be timed: {timings[-1].problem}"
            if timings
            else "no thread count runs here",
            "use --cpu-kernel torch, or --threads N",
        )
    return tuple(timings)


def fastest(timings: tuple[ThreadTiming, ...]) -> ThreadTiming:
    """The timing with the fewest threads, then nodes, within `TIE` of the shortest."""
    timed = [(timing.p25_us, timing) for timing in timings if timing.p25_us is not None]
    limit = min(us for us, _ in timed) * (1 + TIE)
    return min(
        (timing for us, timing in timed if us <= limit), key=lambda timing: (timing.threads, timing.subpools)
    )
