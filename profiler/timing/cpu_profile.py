"""Profile the CPU's side: choose a kernel, time it, fit it."""

from collections.abc import Callable

from placer.errors import MissingComponentError
from placer.kernels.backends import AUTO, Backend, choose_cpu_backend
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.steps import Steps
from placer.profiler.timing.campaign import Progress, time_campaign
from placer.profiler.timing.grid import trace_calls
from placer.profiler.timing.kernel_profile import KernelProfile, kernel_profile
from placer.profiler.timing.machine import this_machine
from placer.profiler.timing.spec import CampaignSpec

MAX_SECONDS = 90.0
"""Wall time of a campaign unless the caller says otherwise."""


def profile_cpu(
    shape: ExpertShape,
    *,
    backend: str = AUTO,
    threads: int = 1,
    heldout_steps: Steps | None = None,
    max_seconds: float = MAX_SECONDS,
    seed: int = 0,
    resident_bytes: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> KernelProfile:
    """Time and fit the CPU experts of ``shape``.

    Parameters
    ----------
    backend
        What `choose_cpu_backend` takes. With "auto" a kernel that fails when it is run, or returns wrong
        numbers, gives way to the next, and a note says so.
    heldout_steps
        Steps of a real trace to judge the fit on, beside made-up ones.
    max_seconds
        Wall time; fewer rounds, then fewer calls, where it is short.
    resident_bytes
        Distinct expert weights to draw from; None for three times the last-level cache.

    Raises
    ------
    BadInputError
        When the steps are not of this shape, or the time is too short to fit anything.
    MissingComponentError
        When the kernel cannot run, crashes, hangs or returns wrong numbers.
    """
    held_out = trace_calls(shape, heldout_steps, seed) if heldout_steps is not None else ()
    notes: tuple[str, ...] = ()
    if heldout_steps is not None and not held_out:
        notes = ("no step of the trace is small enough to time, so made-up steps alone judge the fit",)

    def run(kernel: Backend, reason: str, notes: tuple[str, ...]) -> KernelProfile:
        nodes, node_notes = _subpools(kernel, shape, threads)
        spec = CampaignSpec(
            device="cpu",
            backend=kernel.name,
            threads=threads,
            subpools=nodes,
            shape=shape,
            seed=seed,
            max_seconds=max_seconds,
            extra_calls=held_out,
            resident_bytes=resident_bytes,
        )
        return kernel_profile(spec, time_campaign(spec, progress), reason, (*notes, *node_notes))

    failed: dict[Backend, str] = {}
    while True:
        chosen, reason = choose_cpu_backend(backend, shape, threads, failed)
        try:
            return run(chosen, reason, notes)
        except MissingComponentError as error:
            if backend != AUTO:
                raise
            failed[chosen] = error.what
            notes = (*notes, f"{chosen.name} was tried and failed: {error.what}")


def _subpools(kernel: Backend, shape: ExpertShape, threads: int) -> tuple[int, tuple[str, ...]]:
    """NUMA nodes to spread kt-kernel's threads over: each takes an equal share of every expert."""
    wanted = min(this_machine().numa_nodes, threads)
    nodes = kernel.memory_nodes(shape, wanted)
    if nodes == wanted or not kernel.name.startswith("kt"):
        return nodes, ()
    note = (
        f"{kernel.method} cannot cut expert width {shape.expert_intermediate_size} into {wanted} shares: "
        f"profiled with {nodes} of {wanted} NUMA nodes, serve with --kt-threadpool-count {nodes}"
    )
    return nodes, (note,)
