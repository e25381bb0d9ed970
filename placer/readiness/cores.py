"""CPU cores: kt-kernel's spinning pool threads, one per NUMA pool bound, beside the servers' GPU workers."""

from collections.abc import Iterator
from dataclasses import dataclass

from placer.kernels.cores import usable_cores
from placer.placement import PlacementDocument
from placer.profiler.timing.machine import numa_nodes, this_machine
from placer.readiness.check import Check, Failure, Verdict
from placer.units import counted

_OTHERS = 2
"""Processes beside the schedulers that answer requests: the HTTP server with its tokenizer, the detokenizer."""


@dataclass(frozen=True)
class Cores:
    """What a process may use here: cores, its NUMA nodes with how many cores each has, and the CPU's name."""

    cpu: str
    isa: tuple[str, ...]
    usable: int
    nodes: tuple[tuple[int, int], ...]


def cores() -> Cores:
    """The cores of this machine."""
    machine = this_machine()
    nodes = tuple((node.node, _count(node.cores)) for node in numa_nodes())
    return Cores(machine.cpu, machine.isa, usable_cores(), nodes)


def _fewer_threads(threads: int, workers: int) -> str:
    """The smaller machine that a plan for one thread would do with, where the plan has more."""
    return (
        ""
        if threads <= 1
        else f" for this plan, or {2 + workers} to profile with --threads 1 and solve again"
    )


def check_cores(placement: PlacementDocument, here: Cores) -> Iterator[Check]:
    """Threads against cores, pools against NUMA nodes, the CPU and its instructions against the profiled one."""
    kt = placement.kt
    if kt is None:
        yield Check(
            "CPU cores",
            Verdict.UNKNOWN,
            f"{counted(here.usable, 'usable core')}",
            "the placement does not say how many threads (field kt)",
            "affinity mask and cgroup quota",
            "solve again with a profile that says so",
        )
        yield _instructions(placement.cpu_method, here)
        yield _same_cpu(placement, here)
        return
    # The pool keeps one thread more than it is told, and all of them spin while they wait.
    pool, workers = kt.threads + 1, placement.tp
    needed = (
        f"{pool + workers}: {pool} for the CPU pool, which spin, {workers} for GPU workers; {_OTHERS} processes that "
        "answer requests share them"
    )
    fitting = here.usable - 1 - workers
    fewer = (
        f"profile with --threads {fitting} and solve again"
        if fitting >= 1
        else f"take a machine with at least {pool + workers} cores{_fewer_threads(kt.threads, workers)}: "
        "the pool spins with one thread more than --threads says, and every GPU worker takes a core"
    )
    if pool > here.usable:
        verdict, do = Verdict.FAIL, fewer
    elif pool + workers > here.usable:
        verdict = Verdict.WARN
        do = f"GPU workers would share cores with spinning threads and launch late: {fewer}"
    else:
        verdict, do = Verdict.OK, ""
    yield Check(
        "CPU cores",
        verdict,
        f"{counted(here.usable, 'usable core')}",
        needed,
        "affinity mask and cgroup quota",
        do,
    )
    yield _pools(kt.threads, kt.subpools, here)
    yield _instructions(placement.cpu_method, here)
    yield _same_cpu(placement, here)


def _pools(threads: int, pools: int, here: Cores) -> Check:
    found = ", ".join(f"node {node}: {counted(count, 'core')}" for node, count in here.nodes) or "none told"
    by_node, each = dict(here.nodes), -(-threads // pools)
    verdict, do = Verdict.OK, ""
    if not here.nodes:
        verdict, do = Verdict.UNKNOWN, "compare with: numactl --hardware"
    elif not set(range(pools)) <= set(by_node):
        verdict = Verdict.FAIL
        do = "kt-kernel binds pool i to NUMA node i, and not all of these exist: profile here and solve again"
    elif any(by_node[node] < each for node in range(pools)):
        verdict, do = (
            Verdict.WARN,
            "a pool has more threads than its node has cores: profile with fewer --threads",
        )
    elif pools < len(here.nodes):
        verdict = Verdict.WARN
        do = "experts lie on part of the nodes only: 'placer profile --sweep-threads' tries more pools"
    return Check(
        "NUMA nodes",
        verdict,
        found,
        f"{counted(pools, 'pool')} of up to {each} threads, on nodes 0 to {pools - 1}",
        "sysfs",
        do,
    )


_NEEDS = {"AMXINT4": "avx512f", "AMXINT8": "avx512f", "RAWINT4": "avx2", "LLAMAFILE": "avx2"}
"""Least instruction set of each CPU method (kt_kernel/utils/amx.py of kt-kernel 0.7.2)."""


def _instructions(method: str, here: Cores) -> Check:
    needed = _NEEDS.get(method, "avx2")
    has = needed in here.isa
    return Check(
        "CPU instructions",
        Verdict.OK if has else Verdict.FAIL,
        ", ".join(here.isa) or "none of those that INT4 kernels use",
        f"{needed} for {method}",
        "/proc/cpuinfo",
        "" if has else "this CPU cannot run the method: profile here with --cpu-kernel auto, and solve again",
        Failure.MISSING,
    )


def _same_cpu(placement: PlacementDocument, here: Cores) -> Check:
    entry = placement.hardware.get("cpu")
    planned = str(entry.get("name", "")) if isinstance(entry, dict) else ""
    verdict, do = Verdict.OK, ""
    if not planned:
        verdict, do = Verdict.UNKNOWN, "the placement does not name the CPU that was profiled"
    elif placement.datasheet_cpu is not None:
        verdict = Verdict.WARN
        do = "planned from a datasheet: run 'placer profile' here and solve again before you rely on its figures"
        planned = f"{planned} (datasheet)"
    elif planned != here.cpu:
        verdict = Verdict.WARN
        do = "times and the split were made for the other CPU: run 'placer profile' here and solve again"
    return Check("CPU model", verdict, here.cpu, planned or "not said", "/proc/cpuinfo", do)


def _count(cores: str) -> int:
    """How many cores a list as the system writes it names: 0-3,8 are five."""
    ends = [part.partition("-") for part in cores.split(",") if part]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)
