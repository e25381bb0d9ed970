"""How one bound call is timed: by the wall clock on a CPU, by events around a CUDA graph on a GPU."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_CUDA: Any = torch.cuda
"""torch types these constructors in some versions and not in others."""

Stopwatch = Callable[[Callable[[], Tensor]], float]
"""Runs a bound call and returns its microseconds."""


def cuda_event() -> Any:
    """A CUDA event that keeps its time."""
    return _CUDA.Event(enable_timing=True)


def wall_clock(call: Callable[[], Tensor]) -> float:
    """Microseconds of one blocking call."""
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1e3


def cuda_graph_stopwatch() -> Stopwatch:
    """A stopwatch that captures each call, as serving does, and times one replay with cold weights.

    The call runs twice before it is timed (once to compile and to fill caches of kernels, once as a graph),
    and a buffer of twice the L2 cache is overwritten in between, so that no weight is still there.
    """
    device = torch.device("cuda")
    cache_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    flush = torch.zeros(max(2 * cache_bytes, 1 << 20), dtype=torch.uint8, device=device)
    side = _CUDA.Stream()
    pool = torch.cuda.graph_pool_handle()

    def measure(call: Callable[[], Tensor]) -> float:
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            call()
            side.synchronize()
            # `torch.cuda.graph` would collect garbage and empty the allocator around every capture.
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(pool=pool)
            call()
            graph.capture_end()
            graph.replay()
            flush.fill_(1)
            begin, end = cuda_event(), cuda_event()
            side.synchronize()
            begin.record(side)
            graph.replay()
            end.record(side)
            side.synchronize()
        return float(begin.elapsed_time(end) * 1e3)

    return measure
