"""The machine that a campaign runs on: what it is, and the memory bandwidth it shows in the same run."""

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import Tensor

from placer.kernels.cores import usable_cores
from placer.profiler.timing.stopwatch import cuda_event

_CPU_FOLDER = Path("/sys/devices/system/cpu")
_NODE_FOLDER = Path("/sys/devices/system/node")
_ISA_FLAGS = (
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_int8",
)
BANDWIDTH_PASSES = 5
ARITHMETIC_PASSES, ARITHMETIC_SIDES = 3, (256, 512, 1024, 2048)
ARITHMETIC_SECONDS = 0.05
"""A product that takes longer than this is not tried at a larger size: where a CPU has no instructions for a type,
torch multiplies it element by element, and a large product would take half a minute."""
LEAST_BUFFER_BYTES, LARGEST_BUFFER_BYTES = 1 << 27, 1 << 30


@dataclass(frozen=True)
class Bandwidth:
    """Memory read speed of ``device`` ("cpu" or "cuda") by ``threads`` threads (0 on a GPU)."""

    device: str
    threads: int
    bytes_per_s: float


@dataclass(frozen=True)
class Arithmetic:
    """Operations per second, two per multiply-add, of large square products of ``dtype`` by ``threads`` threads."""

    device: str
    threads: int
    dtype: str
    flops: float


@dataclass(frozen=True)
class Machine:
    """What a CPU is, as the operating system reports it.

    Attributes
    ----------
    cpu
        Model name.
    isa
        The instruction sets among those that INT4 kernels distinguish.
    usable_cores
        Cores that this process may keep busy.
    numa_nodes
        Memory nodes; 1 where the system does not tell.
    last_level_cache_bytes
        Sum over all distinct last-level caches; 0 where the system does not tell.
    memory_bytes, available_bytes
        Installed memory, and what was free to use when asked.
    load_average
        Runnable processes over the last minute when asked.
    """

    cpu: str
    isa: tuple[str, ...]
    usable_cores: int
    numa_nodes: int
    last_level_cache_bytes: int
    memory_bytes: int
    available_bytes: int
    load_average: float


@dataclass(frozen=True)
class NumaNode:
    """One memory node: its number, its cores as the system lists them ("0-15,32-47"), its memory."""

    node: int
    cores: str
    memory_bytes: int


def numa_nodes(folder: Path = _NODE_FOLDER) -> tuple[NumaNode, ...]:
    """The memory nodes in ``folder``; empty where the system does not tell."""
    found = []
    for path in sorted(folder.glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        try:
            cores = (path / "cpulist").read_text(encoding="ascii").strip()
            total = (path / "meminfo").read_text(encoding="ascii").partition("MemTotal:")[2].split()[0]
        except (OSError, IndexError):
            continue
        found.append(NumaNode(int(path.name[4:]), cores, int(total) * 1024))
    return tuple(found)


def this_machine() -> Machine:
    """Read the facts of this machine."""
    model, flags = _cpu_model()
    memory = psutil.virtual_memory()
    return Machine(
        cpu=model,
        isa=tuple(flag for flag in _ISA_FLAGS if flag in flags),
        usable_cores=usable_cores(),
        numa_nodes=max(1, len(numa_nodes())),
        last_level_cache_bytes=_last_level_cache_bytes(_CPU_FOLDER),
        memory_bytes=int(memory.total),
        available_bytes=int(memory.available),
        load_average=os.getloadavg()[0],
    )


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


def _cpu_model() -> tuple[str, frozenset[str]]:
    model, flags = platform.processor() or platform.machine(), frozenset[str]()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return model, flags
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            model = value.strip()
        elif name.strip() == "flags":
            flags = frozenset(value.split())
        if not line.strip() and flags:
            break
    return model, flags


def _last_level_cache_bytes(cpus: Path) -> int:
    largest: dict[str, tuple[int, int]] = {}
    for cpu in cpus.glob("cpu[0-9]*"):
        best = (0, 0)
        shared = cpu.name
        for cache in cpu.glob("cache/index[0-9]*"):
            try:
                level = int((cache / "level").read_text())
                size = _kibibytes((cache / "size").read_text())
                sharing = (cache / "shared_cpu_list").read_text().strip()
            except (OSError, ValueError):
                continue
            if (level, size) > best:
                best, shared = (level, size), sharing
        largest[shared] = best
    return sum(size for _, size in largest.values())


def _kibibytes(text: str) -> int:
    text = text.strip()
    return int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[text[-1]]
