"""Whether this process may keep the threads busy that a kernel is asked to run with."""

from placer.kernels.cores import usable_cores
from placer.kernels.problem import Problem


def threads_problem(threads: int) -> Problem | None:
    """Why a kernel without threads of its own beside them cannot have ``threads``, or None."""
    cores = usable_cores()
    if threads <= cores:
        return None
    return Problem(
        f"{threads} threads were asked for, and this process may use {cores} cores",
        f"use --threads {cores} or fewer",
    )
