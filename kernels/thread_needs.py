"""Whether this process may keep the threads busy that a kernel is asked to run with."""

from placer.kernels.cores import usable_cores
from placer.kernels.problem import Problem

SPARE_CORES = {"kt": 1, "kt-amxint4": 1, "kt-amxint8": 1, "kt-llamafile": 1}
"""Cores that a kernel keeps busy beside its threads, by its name: kt-kernel's pool spins with one thread more."""


def cores_needed(kernel: str, threads: int) -> int:
    """Cores that the kernel named ``kernel`` needs to run with ``threads``."""
    return threads + SPARE_CORES.get(kernel, 0)


def threads_problem(threads: int) -> Problem | None:
    """Why a kernel without threads of its own beside them cannot have ``threads``, or None."""
    cores = usable_cores()
    if threads <= cores:
        return None
    return Problem(
        f"{threads} threads were asked for, and this process may use {cores} cores",
        f"use --threads {cores} or fewer",
    )
