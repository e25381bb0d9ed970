"""One solver on one instance, in a process of its own, so that time and memory are this run's alone."""

import time
from dataclasses import dataclass
from typing import NoReturn

import psutil

from placer.errors import BadInputError
from placer.solvers.bench.instance import Instance
from placer.solvers.bench.level_choice import solve_levels
from placer.solvers.bench.rival import RivalAnswer
from placer.solvers.bench.rival_cbc import run_cbc
from placer.solvers.bench.rival_highs import run_highs
from placer.solvers.bench.sparse_program import sparse_program
from placer.solvers.bench.trajectory import Milestone
from placer.solvers.fresh_process import EndedWithoutAnswerError, end_with, run_fresh
from placer.solvers.ilp import TOLERANCE
from placer.solvers.peak_memory import PeakMemory
from placer.solvers.problem import PlacementProblem
from placer.solvers.solution import Solution, SolverStatus, relative_gap

STRUCTURED = "structured"


@dataclass(frozen=True)
class Limits:
    """When a solver stops: at a relative ``gap``, or after ``time_limit_s``.

    The clock is the wall's, or with ``cpu`` the CPU time of the rival's own process, which other work on
    the machine does not use up. The structured solver's clock is always the wall's; with ``prove`` it goes on to
    the time limit where its gap is open.
    """

    time_limit_s: float
    gap: float = 0.0
    cpu: bool = False
    prove: bool = False


@dataclass(frozen=True)
class SolverRun:
    """How far one solver came on one instance.

    Attributes
    ----------
    objective_us
        Of its placement, computed from the instance; None where it has none.
    lp_us
        The linear relaxation's value, or None where it was not reached.
    seconds, cpu_seconds
        Wall clock and CPU time (all threads) of the solve; reading the instance is left out, for rivals
        writing their program too.
    peak_bytes
        Resident memory at its peak, less what the process held with the instance read.
    milestones
        Of a rival: each change of its placement or bound.
    """

    solver: str
    status: SolverStatus
    objective_us: float | None
    lp_us: float | None
    bound_us: float | None
    gap: float | None
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    milestones: tuple[Milestone, ...] = ()


def run_solver(instance: Instance, solver: str, limits: Limits) -> SolverRun:
    """Run ``solver`` (`STRUCTURED` or one of `RIVALS`) on ``instance`` in a fresh interpreter.

    Raises
    ------
    MissingComponentError
        When the rival is not installed.
    BadInputError
        When the process was killed or crashed.
    """
    try:
        return run_fresh(_work, instance, solver, limits)
    except EndedWithoutAnswerError as ended:
        raise BadInputError(
            f"{instance.name}: the {solver} solver {ended}", "it was killed or crashed: check the free memory"
        ) from None


def _work(instance: Instance, solver: str, limits: Limits) -> SolverRun:
    problems = instance.problems()
    with PeakMemory() as memory:
        if solver == STRUCTURED:
            return _structured(problems, limits, memory)
        _rival(problems, solver, limits, memory)
    raise AssertionError("a rival's answer ends the process")


def _structured(problems: tuple[PlacementProblem, ...], limits: Limits, memory: PeakMemory) -> SolverRun:
    start_s = _cpu_s()
    solution = solve_levels(problems, gap=limits.gap, time_limit_s=limits.time_limit_s, prove=limits.prove)
    return SolverRun(
        solver=STRUCTURED,
        status=_proven(solution),
        objective_us=solution.objective_us,
        lp_us=solution.lp_us,
        bound_us=solution.bound_us,
        gap=solution.gap,
        seconds=solution.seconds,
        cpu_seconds=_cpu_s() - start_s,
        peak_bytes=memory.peak_bytes,
    )


def _proven(solution: Solution) -> SolverStatus:
    """OPTIMAL at a gap below the rivals' own tolerance, whatever stopped the solver."""
    proven = solution.gap is not None and solution.gap < TOLERANCE
    return SolverStatus.OPTIMAL if proven else solution.status


def _rival(
    problems: tuple[PlacementProblem, ...],
    solver: str,
    limits: Limits,
    memory: PeakMemory,
) -> None:
    program = sparse_program(problems)
    start_s, start_cpu_s = time.perf_counter(), _cpu_s()

    def finish(answer: RivalAnswer) -> NoReturn:
        seconds, cpu_seconds = time.perf_counter() - start_s, _cpu_s() - start_cpu_s
        # The solver may still be running in another thread: nothing in this process is needed any more.
        end_with(_judged(problems, solver, answer, seconds, cpu_seconds, memory.peak_bytes))

    if solver == "highs":
        run_highs(program, gap=limits.gap, time_limit_s=limits.time_limit_s, cpu=limits.cpu, finish=finish)
    else:
        finish(run_cbc(program, gap=limits.gap, time_limit_s=limits.time_limit_s, cpu=limits.cpu))


def _judged(
    problems: tuple[PlacementProblem, ...],
    solver: str,
    answer: RivalAnswer,
    seconds: float,
    cpu_seconds: float,
    peak_bytes: int,
) -> SolverRun:
    """The answer with its placement checked and priced; the bound is lowered by the solver's tolerance."""
    objective = gap = None
    status, bound = answer.status, answer.bound_us
    if bound is not None:
        bound -= TOLERANCE * (abs(bound) + 1e-3)
    if answer.hot is not None and answer.level is not None:
        problem = problems[answer.level]
        if problem.is_feasible(answer.hot):
            objective = problem.objective_us(answer.hot)
            bound = None if bound is None else min(bound, objective)
            gap = None if bound is None else relative_gap(objective, bound, problem.constant_us)
        else:
            # Within its own tolerance, but not a placement.
            status = SolverStatus.NO_SOLUTION
    return SolverRun(
        solver=solver,
        status=status,
        objective_us=objective,
        lp_us=answer.lp_us,
        bound_us=bound,
        gap=gap,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        peak_bytes=peak_bytes,
        milestones=answer.milestones,
    )


def _cpu_s() -> float:
    """CPU time of this process and of its children that have ended (CBC is one)."""
    times = psutil.Process().cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)
