"""Host memory: kt-kernel holds every expert there, hot ones too, cut over its NUMA nodes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from placer.placement import PlacementDocument
from placer.readiness.check import Check, Verdict
from placer.units import gib

_NODES = Path("/sys/devices/system/node")
_CGROUP = Path("/sys/fs/cgroup")
_CURE = "stop what uses memory, or plan with --host-memory for a server that has it"


@dataclass(frozen=True)
class NodeMemory:
    """Free bytes of one NUMA node, page cache counted as free."""

    node: int
    free_bytes: int


@dataclass(frozen=True)
class HostMemory:
    """Bytes that a process could take now: of the machine, of the cgroup where it is limited, by NUMA node."""

    available_bytes: int
    cgroup_bytes: int | None
    nodes: tuple[NodeMemory, ...]


def host_memory(nodes: Path = _NODES, cgroup: Path = _CGROUP) -> HostMemory:
    """The memory of this machine; the folders are where Linux tells of NUMA nodes and of a cgroup v2."""
    return HostMemory(int(psutil.virtual_memory().available), _cgroup_bytes(cgroup), _node_memory(nodes))


def check_host_memory(placement: PlacementDocument, memory: HostMemory) -> Iterator[Check]:
    """All of it against the ledger's sum, and the part of each NUMA node that a CPU pool is bound to."""
    ledger = placement.host.ledger
    needed = sum(ledger.values())
    limited = memory.cgroup_bytes is not None and memory.cgroup_bytes < memory.available_bytes
    found = memory.available_bytes if memory.cgroup_bytes is None or not limited else memory.cgroup_bytes
    fits = needed <= found
    yield Check(
        "host memory",
        Verdict.OK if fits else Verdict.FAIL,
        f"{gib(found)} available",
        f"{gib(needed)} ({', '.join(f'{name} {gib(size)}' for name, size in ledger.items())})",
        "the limit of this cgroup (memory.max)" if limited else "MemAvailable of the kernel",
        "" if fits else _CURE,
    )
    pools = 1 if placement.kt is None else placement.kt.subpools
    by_node = {node.node: node.free_bytes for node in memory.nodes}
    if pools < 2 or not set(range(pools)) <= set(by_node):
        return
    # kt-kernel binds pool i to node i, and each holds its part of every expert.
    each = -(-(ledger.get("experts", 0) + ledger.get("scratch", 0)) // pools)
    node = min(range(pools), key=lambda index: by_node[index])
    fits = each <= by_node[node]
    yield Check(
        "host memory of a NUMA node",
        Verdict.OK if fits else Verdict.WARN,
        f"node {node} has the least: {gib(by_node[node])} free",
        f"{gib(each)} on each of {pools} nodes",
        "MemFree and FilePages of each node (sysfs)",
        "" if fits else "experts would lie on the other node and be read across: free that node first",
    )


def _cgroup_bytes(folder: Path) -> int | None:
    """What a cgroup v2 still allows, its page cache counted as free; None where it sets no limit."""
    try:
        limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        if limit == "max":
            return None
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        cache = next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
        return max(0, int(limit) - used + cache)
    except (OSError, ValueError, IndexError):
        return None


def _node_memory(folder: Path) -> tuple[NodeMemory, ...]:
    found = []
    for path in sorted(folder.glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        try:
            lines = (path / "meminfo").read_text(encoding="ascii").splitlines()
            sizes = {
                line.split()[2].rstrip(":"): int(line.split()[3]) * 1024 for line in lines if line.strip()
            }
            found.append(NodeMemory(int(path.name[4:]), sizes["MemFree"] + sizes.get("FilePages", 0)))
        except (OSError, ValueError, IndexError, KeyError):
            continue
    return tuple(found)
