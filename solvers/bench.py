"""`placer bench`: instances solved by the structured solver and its rivals, one row each."""

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from placer.errors import BadInputError, PlacerError
from placer.solvers.ilp import solve_ilp
from placer.solvers.instance import read_instance
from placer.solvers.peak_memory import PeakMemory
from placer.solvers.solution import Solution
from placer.solvers.structured import solve_structured

RIVALS = ("highs", "cbc")
"""General ILP solvers that an instance can be given to."""


@dataclass(frozen=True)
class BenchRow:
    """One instance and one solver.

    Attributes
    ----------
    lp_us
        The relaxation's value where the solver closed it.
    gap
        (objective - bound) / objective; these instances have no constant part.
    seconds
        Wall time of the solve, reading left out.
    peak_bytes
        Resident memory of the solve at its peak: a process of its own and its children (CBC is one),
        sampled every 10 ms, less what the process held with the instance read.
    """

    name: str
    solver: str
    objective_us: float | None
    lp_us: float | None
    bound_us: float | None
    gap: float | None
    seconds: float
    peak_bytes: int
    status: str


def bench(
    paths: Sequence[Path],
    *,
    time_limit_s: float,
    rivals: Sequence[str] = (),
    gap: float = 0.0,
    prove: bool = False,
) -> list[BenchRow]:
    """Solve every instance with the structured solver and with each of ``rivals``.

    ``prove`` lets the structured solver go on to the time limit where its gap is open.

    Raises
    ------
    BadInputError
        When an instance cannot be read, a rival is not known, or a limit is out of range.
    """
    unknown = [name for name in rivals if name not in RIVALS]
    if unknown:
        raise BadInputError(f"rival {unknown[0]!r} is not known", f"use one of: {', '.join(RIVALS)}")
    if not 0 < time_limit_s < 1e6 or not 0 <= gap < 1:
        raise BadInputError(
            f"time limit {time_limit_s:g} s, gap {gap:g}", "give seconds above 0 and a gap from 0 to below 1"
        )
    # A file that cannot be read is told before any other is solved.
    for path in paths:
        read_instance(path)
    return [
        _in_own_process(Path(path), solver, time_limit_s, gap, prove)
        for path in paths
        for solver in ("structured", *rivals)
    ]


def _in_own_process(path: Path, solver: str, time_limit_s: float, gap: float, prove: bool) -> BenchRow:
    # A fresh interpreter: only there is the peak of resident memory this solve's own.
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_solve, args=(sender, path, solver, time_limit_s, gap, prove))
    process.start()
    sender.close()
    try:
        answer: BenchRow | PlacerError = receiver.recv()
    except EOFError:
        process.join()
        raise BadInputError(
            f"{path}: the {solver} solver ended with exit code {process.exitcode}",
            "it was killed or crashed: check the free memory",
        ) from None
    finally:
        process.join()
    if isinstance(answer, PlacerError):
        raise answer
    return answer


def _solve(sender: Connection, path: Path, solver: str, time_limit_s: float, gap: float, prove: bool) -> None:
    try:
        problem = read_instance(path)
        solution: Solution
        with PeakMemory() as memory:
            if solver == "structured":
                solution = solve_structured(problem, gap=gap, time_limit_s=time_limit_s, prove=prove)
            else:
                solution = solve_ilp(
                    problem,
                    solver="highs" if solver == "highs" else "cbc",
                    gap=gap,
                    time_limit_s=time_limit_s,
                )
    except PlacerError as error:
        sender.send(error)
        return
    sender.send(
        BenchRow(
            name=problem.name,
            solver=solution.solver,
            objective_us=solution.objective_us,
            lp_us=solution.lp_us,
            bound_us=solution.bound_us,
            gap=solution.gap,
            seconds=solution.seconds,
            peak_bytes=memory.peak_bytes,
            status=solution.status.value,
        )
    )
