"""CBC on an instance: the program as an MPS file, one thread, its defaults, nothing of ours to start from."""

import math
import re
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import psutil
import pulp

from placer.errors import MissingComponentError
from placer.solvers.bench.rival import RivalAnswer
from placer.solvers.bench.rival_highs import write_mps
from placer.solvers.bench.sparse_program import SparseProgram
from placer.solvers.bench.trajectory import Milestone
from placer.solvers.problem import Mask
from placer.solvers.solution import SolverStatus

GRACE_S = 15.0
"""How long after its limit CBC may take to notice it and write its placement, before it is ended."""
_NUMBER = r"([-+\d.e]+)"
_FOUND = re.compile(rf"^Cbc0012I Integer solution of {_NUMBER} found .*\({_NUMBER} seconds\)")
_BEST = re.compile(rf"^Cbc0010I .* {_NUMBER} best solution, best possible {_NUMBER} \({_NUMBER} seconds\)")


def run_cbc(program: SparseProgram, *, gap: float, time_limit_s: float, cpu: bool) -> RivalAnswer:
    """Solve ``program`` until ``gap`` is proven or ``time_limit_s`` of wall clock (CPU time: ``cpu``) is over.

    Writing the file is not on CBC's clock. CBC that does not end `GRACE_S` after its limit is killed, and
    then has no placement.

    Raises
    ------
    MissingComponentError
        When CBC, or HiGHS, which writes the file, is not installed.
    """
    with warnings.catch_warnings():
        # PuLP announces that a later major version ships CBC in a package of its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        backend = pulp.PULP_CBC_CMD(msg=False)
        if not backend.available():
            raise MissingComponentError(
                "CBC is not installed (this PuLP ships no CBC for this machine)", "use --rivals highs"
            )
        executable = backend.path
    with tempfile.TemporaryDirectory(prefix="placer-cbc-") as folder:
        model, answer, log = (Path(folder, name) for name in ("model.mps", "answer.txt", "log.txt"))
        write_mps(program, str(model))
        command = [executable, str(model), "-sec", f"{time_limit_s:g}", "-ratio", f"{gap:g}"]
        command += ["-timeMode", "cpu" if cpu else "elapsed", "-solve", "-solution", str(answer)]
        with log.open("w") as output:
            process = psutil.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
            _wait(process, time_limit_s, cpu=cpu)
        report = log.read_text(encoding="utf-8", errors="replace")
        solution = answer.read_text(encoding="utf-8", errors="replace") if answer.exists() else ""
    return _read(program, report, solution)


def _wait(process: psutil.Popen, time_limit_s: float, *, cpu: bool) -> None:
    start = time.perf_counter()
    used = 0.0
    while process.poll() is None:
        try:
            times = process.cpu_times()
            used = times.user + times.system if cpu else time.perf_counter() - start
        except psutil.NoSuchProcess:
            continue
        if used > time_limit_s + GRACE_S:
            process.kill()
        time.sleep(0.02)


def _read(program: SparseProgram, report: str, solution: str) -> RivalAnswer:
    """The answer from CBC's log and its solution file (a status line, then: number, name, value, cost)."""
    milestones = _milestones(report)
    level, hot = _placement(program, solution)
    relaxed = _last(rf"^Continuous objective value is {_NUMBER}", report)
    bound = _last(rf"^Lower bound:\s+{_NUMBER}", report)
    known = [one.bound_us for one in milestones if one.bound_us is not None]
    proven = "Result - Optimal solution found" in report
    if "Result - Problem proven infeasible" in report or "Problem is infeasible" in report:
        return RivalAnswer(SolverStatus.INFEASIBLE, None, None, None, None, ())
    if proven and bound is None:
        # CBC prints a bound only where the gap is open.
        bound = _last(rf"^Objective value:\s+{_NUMBER}", report)
    if bound is None:
        bound = known[-1] if known else relaxed
    reached = SolverStatus.OPTIMAL if proven else SolverStatus.TIME_LIMIT
    status = SolverStatus.NO_SOLUTION if hot is None else reached
    return RivalAnswer(status, level, hot, bound, relaxed, milestones)


def _milestones(report: str) -> tuple[Milestone, ...]:
    """CBC's log tells one clock: that of its limit."""
    found: list[Milestone] = []
    objective: float | None = None
    bound: float | None = None
    for line in report.splitlines():
        if match := _FOUND.match(line):
            objective, seconds = float(match[1]), float(match[2])
        elif match := _BEST.match(line):
            held, bound, seconds = float(match[1]), float(match[2]), float(match[3])
            objective = held if abs(held) < 1e40 else objective
        else:
            continue
        found.append(Milestone(seconds, seconds, objective, bound))
    return tuple(found)


def _placement(program: SparseProgram, solution: str) -> tuple[int | None, Mask | None]:
    lines = solution.splitlines()
    if not lines or "no integer solution" in lines[0].lower() or "infeasible" in lines[0].lower():
        return None, None
    values = np.zeros(len(program.cost))
    for line in lines[1:]:
        fields = line.replace("**", "").split()
        values[int(fields[1].removeprefix("c"))] = float(fields[2])
    if not np.any(values[list(program.chosen)] > 0.5):
        return None, None
    return program.placement(values)


def _last(pattern: str, report: str) -> float | None:
    found = re.findall(pattern, report, flags=re.MULTILINE)
    value = float(found[-1]) if found else math.inf
    return value if math.isfinite(value) else None
