"""What this machine sustains, timed in the same run as a campaign: reading of memory and dense arithmetic."""

import time
from collections.abc import Callable

import psutil
import torch
from torch import Tensor

from placer.profiler.timing.machine import Arithmetic, Bandwidth
from placer.profiler.timing.stopwatch import cuda_event

BANDWIDTH_PASSES = 5
ARITHMETIC_PASSES, ARITHMETIC_SIDES = 3, (256, 512, 1024, 2048)
ARITHMETIC_SECONDS = 0.05
"""A product that takes longer than this is not tried at a larger size: where a CPU has no instructions for a type,
torch multiplies it element by element, and a large product would take half a minute."""
LEAST_BUFFER_BYTES, LARGEST_BUFFER_BYTES = 1 << 27, 1 << 30


def read_bandwidth_bytes_per_s(threads: int, cache_bytes: int) -> float:
    """Best of a few passes over a buffer three times ``cache_bytes`` (128 MiB to 1 GiB).

    A dot product of the buffer with itself: one load per value and arithmetic far below the core's peak.
    Leaves torch's thread count as it was.
    """
    available = psutil.virtual_memory().available
    size = min(max(3 * cache_bytes, LEAST_BUFFER_BYTES), LARGEST_BUFFER_BYTES, available // 4)
    buffer = torch.ones(size // 4, dtype=torch.float32)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    best = float("inf")
    for _ in range(BANDWIDTH_PASSES):
        start = time.perf_counter()
        torch.dot(buffer, buffer)
        best = min(best, time.perf_counter() - start)
    torch.set_num_threads(before)
    return buffer.numel() * 4 / best


def dense_arithmetic(threads: int) -> tuple[Arithmetic, ...]:
    """Best of a few products of square matrices in float32, bfloat16 and int8, as torch computes them.

    The fastest of them is what the arithmetic of this machine is held against: INT4 kernels compute in any of
    the three. Sides grow up to 2048 where a product is quick enough. Leaves torch's thread count as it was.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    found = []
    products: tuple[tuple[str, torch.dtype, Callable[[Tensor, Tensor], Tensor]], ...] = (
        ("float32", torch.float32, torch.matmul),
        ("bf16", torch.bfloat16, torch.matmul),
        ("int8", torch.int8, torch._int_mm),
    )
    for name, dtype, product in products:
        found.append(Arithmetic("cpu", threads, name, product_flops(product, dtype)))
    torch.set_num_threads(before)
    return tuple(found)


def product_flops(product: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype) -> float:
    """Most operations per second of ``product`` over the sides that are quick enough."""
    flops = 0.0
    for side in ARITHMETIC_SIDES:
        matrix = torch.ones(side, side, dtype=dtype)
        best = float("inf")
        for _ in range(ARITHMETIC_PASSES):
            start = time.perf_counter()
            product(matrix, matrix)
            best = min(best, time.perf_counter() - start)
        flops = max(flops, 2 * side**3 / best)
        if best > ARITHMETIC_SECONDS:
            break
    return flops


def gpu_bandwidth() -> Bandwidth:
    """Best of a few device-to-device copies of 1 GiB, bytes read and bytes written counted."""
    source = torch.ones(LARGEST_BUFFER_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(BANDWIDTH_PASSES):
        begin, end = cuda_event(), cuda_event()
        begin.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / 1e3)
    return Bandwidth("cuda", 0, 2 * LARGEST_BUFFER_BYTES / best)
