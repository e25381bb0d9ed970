"""How many NUMA nodes kt-kernel's threads are spread over: each takes an equal share of every expert."""

from placer.kernels.expert_mlp import ExpertMLP
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.kt_rawint4 import BLOCK, KtRawInt4
from placer.profiler.timing.machine import this_machine


def subpool_counts(kernel: type[ExpertMLP], shape: ExpertShape, threads: int) -> tuple[int, ...]:
    """Node counts up to this machine's that divide the experts of ``shape`` into whole blocks, ascending.

    (1,) for kernels that know no nodes.
    """
    if kernel is not KtRawInt4:
        return (1,)
    most = min(this_machine().numa_nodes, threads)
    return tuple(n for n in range(1, most + 1) if shape.expert_intermediate_size % (BLOCK * n) == 0)


def default_subpools(
    kernel: type[ExpertMLP], shape: ExpertShape, threads: int
) -> tuple[int, tuple[str, ...]]:
    """The most nodes that `subpool_counts` allows, and a note where that is fewer than there are."""
    most = subpool_counts(kernel, shape, threads)[-1]
    wanted = min(this_machine().numa_nodes, threads)
    if kernel is not KtRawInt4 or most == wanted:
        return most, ()
    return most, (
        f"expert width {shape.expert_intermediate_size} in {wanted} shares is no multiple of {BLOCK}: "
        f"profiled with {most} of {wanted} NUMA nodes, serve with --kt-threadpool-count {most}",
    )
