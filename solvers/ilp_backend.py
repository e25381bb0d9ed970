"""HiGHS and CBC behind PuLP: run one, and say exactly how it ended."""

import re
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pulp

from placer.errors import MissingComponentError
from placer.solvers.highs_engine import highspy, silence_banner
from placer.solvers.solution import SolverStatus

SolverName = Literal["highs", "cbc"]


@dataclass(frozen=True)
class Answer:
    """How a solver ended.

    Attributes
    ----------
    status
        OPTIMAL (the gap is proven), TIME_LIMIT (a placement, gap open), INFEASIBLE, or NO_SOLUTION.
    has_values
        Whether the variables hold an integer solution.
    bound_us
        Lower bound in the program's own objective, or None where the solver gave none.
    """

    status: SolverStatus
    has_values: bool
    bound_us: float | None


def run_solver(program: Any, solver: SolverName, *, gap: float, time_limit_s: float) -> Answer:
    """Solve the PuLP problem ``program``; nothing is printed.

    Raises
    ------
    MissingComponentError
        When the solver is not installed.
    """
    if solver == "highs":
        return _highs(program, gap, time_limit_s)
    return _cbc(program, gap, time_limit_s)


def _highs(program: Any, gap: float, time_limit_s: float) -> Answer:
    silence_banner()
    backend = pulp.HiGHS(msg=False, gapRel=gap, timeLimit=time_limit_s)
    # PuLP's own status folds "time limit" into "optimal" and has no bound: ask HiGHS itself.
    backend.createAndConfigureSolver(program)
    backend.buildSolverModel(program)
    backend.callSolver(program)
    engine = program.solverModel
    ended, info = engine.getModelStatus(), engine.getInfo()
    if ended in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        # Every column is bounded or held at zero from below by a non-negative cost: never unbounded.
        return Answer(SolverStatus.INFEASIBLE, False, None)
    limits = (
        highspy.HighsModelStatus.kTimeLimit,
        highspy.HighsModelStatus.kIterationLimit,
        highspy.HighsModelStatus.kSolutionLimit,
        highspy.HighsModelStatus.kInterrupt,
    )
    if ended != highspy.HighsModelStatus.kOptimal and ended not in limits:
        # An error, or an engine that never ran: what it holds is no bound and no placement.
        return Answer(SolverStatus.NO_SOLUTION, False, None)
    bound = float(info.mip_dual_bound)
    known = bound if abs(bound) < highspy.kHighsInf else None
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return Answer(SolverStatus.NO_SOLUTION, False, known)
    values = engine.getSolution().col_value
    for variable in program.variables():
        variable.varValue = values[variable.index]
    if ended == highspy.HighsModelStatus.kOptimal:
        return Answer(SolverStatus.OPTIMAL, True, known)
    return Answer(SolverStatus.TIME_LIMIT, True, known)


def _cbc(program: Any, gap: float, time_limit_s: float) -> Answer:
    with tempfile.TemporaryDirectory(prefix="placer-cbc-") as folder, warnings.catch_warnings():
        # PuLP announces that a later major version ships CBC in a package of its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        log = Path(folder, "cbc.log")
        backend = pulp.PULP_CBC_CMD(msg=False, gapRel=gap, timeLimit=time_limit_s, logPath=str(log))
        if not backend.available():
            raise MissingComponentError(
                "CBC is not installed (this PuLP ships no CBC for this machine)",
                "use --solver highs or auto",
            )
        backend.tmpDir = folder
        try:
            program.solve(backend)
        except pulp.PulpSolverError:
            return Answer(SolverStatus.NO_SOLUTION, False, None)
        report = log.read_text(encoding="utf-8", errors="replace")
    bound = _last_number(r"^Lower bound:\s*(\S+)", report)
    if program.sol_status == pulp.LpSolutionOptimal:
        objective = pulp.value(program.objective)
        # CBC prints its bound only where the gap is open; otherwise the objective is the bound up to the gap.
        proven = objective - gap * abs(objective) if bound is None and _within_gap(report) else objective
        return Answer(SolverStatus.OPTIMAL, True, proven if bound is None else bound)
    if program.sol_status == pulp.LpSolutionIntegerFeasible:
        return Answer(SolverStatus.TIME_LIMIT, True, bound)
    if program.sol_status == pulp.LpSolutionInfeasible:
        return Answer(SolverStatus.INFEASIBLE, False, None)
    return Answer(SolverStatus.NO_SOLUTION, False, bound)


def _within_gap(report: str) -> bool:
    return "within gap tolerance" in report


def _last_number(pattern: str, report: str) -> float | None:
    found = re.findall(pattern, report, flags=re.MULTILINE)
    try:
        return float(found[-1]) if found else None
    except ValueError:
        return None
