"""The machine that a campaign runs on: what it is, as its system tells, and the words for what it sustains."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

from placer.kernels.cores import usable_cores

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
