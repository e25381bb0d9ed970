"""How many NUMA nodes kt-kernel's threads are spread over: each takes an equal share of every expert."""

from placer.kernels.backends import Backend
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.kt_moe import KtMoe
from placer.profiler.timing.machine import this_machine


def subpool_counts(kernel: Backend, shape: ExpertShape, threads: int) -> tuple[int, ...]:
    """Node counts up to this machine's that ``kernel`` can spread the experts of ``shape`` over, ascending.

    (1,) for kernels that know no nodes.
    """
    most = min(this_machine().numa_nodes, threads)
    return tuple(sorted({kernel.memory_nodes(shape, wanted) for wanted in range(1, most + 1)}))


def default_subpools(kernel: Backend, shape: ExpertShape, threads: int) -> tuple[int, tuple[str, ...]]:
    """The most nodes that `subpool_counts` allows, and a note where that is fewer than there are."""
    wanted = min(this_machine().numa_nodes, threads)
    most = kernel.memory_nodes(shape, wanted)
    if most == wanted or not issubclass(kernel, KtMoe):
        return most, ()
    return most, (
        f"{kernel.method} cannot cut expert width {shape.expert_intermediate_size} into {wanted} shares: "
        f"profiled with {most} of {wanted} NUMA nodes, serve with --kt-threadpool-count {most}",
    )
