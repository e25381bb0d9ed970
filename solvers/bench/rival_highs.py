"""HiGHS on an instance: one thread, its defaults, nothing of ours to start from."""

import re
import threading
import time
from typing import Any

import numpy as np

from placer.solvers.bench.rival import Finish, RivalAnswer
from placer.solvers.bench.sparse_program import SparseProgram
from placer.solvers.bench.trajectory import Milestone
from placer.solvers.highs_engine import highs_engine, highspy
from placer.solvers.solution import SolverStatus

_WATCH_S = 0.05
_LOG_LINE = re.compile(r"%.*\s(\d+)\s+[\d.]+s\s*$")
"""A line of HiGHS's table of progress, up to the iterations of linear programs and the time."""


def run_highs(program: SparseProgram, *, gap: float, time_limit_s: float, cpu: bool, finish: Finish) -> None:
    """Solve ``program`` until ``gap`` is proven or ``time_limit_s`` of wall clock (CPU time: ``cpu``) is over.

    ``finish`` is called once. The limit is watched from outside, since HiGHS looks at its own only between
    the steps of its first linear program; ``finish`` then has to end the process.

    Raises
    ------
    MissingComponentError
        When HiGHS is not installed.
    """
    engine = highs_engine()
    for option, value in (
        ("output_flag", True),
        ("log_to_console", False),
        ("threads", 1),
        ("mip_rel_gap", gap),
    ):
        engine.setOptionValue(option, value)
    engine.passModel(_highs_program(program))
    watch = _Watch(program)
    engine.cbMipImprovingSolution.subscribe(watch.improved)
    engine.cbLogging.subscribe(watch.printed)
    engine.cbMipLogging.subscribe(watch.logged)
    engine.cbMipInterrupt.subscribe(watch.told)
    once = threading.Lock()

    def stop_in_time() -> None:
        while watch.elapsed_s(cpu=cpu) < time_limit_s:
            time.sleep(_WATCH_S)
        if once.acquire(blocking=False):
            finish(watch.answer(SolverStatus.TIME_LIMIT))

    threading.Thread(target=stop_in_time, daemon=True).start()
    engine.run()
    if not once.acquire(blocking=False):
        # The watch has the answer and is about to end the process.
        threading.Event().wait()
    ended = engine.getModelStatus()
    if ended == highspy.HighsModelStatus.kOptimal:
        watch.note(engine.getInfo().objective_function_value, engine.getInfo().mip_dual_bound)
        watch.values = np.array(engine.getSolution().col_value)
        finish(watch.answer(SolverStatus.OPTIMAL))
    elif ended == highspy.HighsModelStatus.kInfeasible:
        finish(watch.answer(SolverStatus.INFEASIBLE))
    else:
        finish(watch.answer(SolverStatus.NO_SOLUTION))


class _Watch:
    """What HiGHS says while it runs."""

    def __init__(self, program: SparseProgram) -> None:
        self._program = program
        self._start_s, self._start_cpu_s = time.perf_counter(), time.process_time()
        self._milestones: list[Milestone] = []
        self._lp_us: float | None = None
        self._iterations = 0
        self._before_lp_us: float | None = None
        self.values: Any = None

    def elapsed_s(self, *, cpu: bool) -> float:
        if cpu:
            return time.process_time() - self._start_cpu_s
        return time.perf_counter() - self._start_s

    def improved(self, event: Any) -> None:
        self.values = np.array(event.data_out.mip_solution)
        self.note(event.data_out.objective_function_value, event.data_out.mip_dual_bound)

    def printed(self, event: Any) -> None:
        """Keep the iterations of linear programs that a line of the log counts; its callback comes next."""
        if match := _LOG_LINE.search(event.message):
            self._iterations = int(match[1])

    def logged(self, event: Any) -> None:
        """A bound before the first iteration comes from the columns' bounds alone, not from a relaxation."""
        if self._iterations == 0:
            self._before_lp_us = float(event.data_out.mip_dual_bound)
        self.told(event)

    def told(self, event: Any) -> None:
        self.note(event.data_out.mip_primal_bound, event.data_out.mip_dual_bound)

    def note(self, objective_us: float, bound_us: float) -> None:
        """Keep a milestone where something changed."""
        objective = float(objective_us) if np.isfinite(objective_us) else None
        bound = float(bound_us) if np.isfinite(bound_us) else None
        if self._lp_us is None and bound != self._before_lp_us:
            # Its presolved root relaxation, before cuts.
            self._lp_us = bound
        last = self._milestones[-1] if self._milestones else None
        if last is None or (last.objective_us, last.bound_us) != (objective, bound):
            self._milestones.append(
                Milestone(self.elapsed_s(cpu=False), self.elapsed_s(cpu=True), objective, bound)
            )

    def answer(self, status: SolverStatus) -> RivalAnswer:
        """The answer as it stands; without a placement the time limit leaves no solution."""
        level = hot = None
        if self.values is not None:
            level, hot = self._program.placement(self.values)
        elif status is SolverStatus.TIME_LIMIT:
            status = SolverStatus.NO_SOLUTION
        bounds = [one.bound_us for one in self._milestones if one.bound_us is not None]
        return RivalAnswer(
            status, level, hot, bounds[-1] if bounds else None, self._lp_us, tuple(self._milestones)
        )


def _highs_program(program: SparseProgram) -> Any:
    rows, columns = program.matrix.shape
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = rows, columns
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.cost, program.column_low, program.column_high
    lp.row_lower_, lp.row_upper_ = program.row_low, program.row_high
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = program.matrix.indptr
    lp.a_matrix_.index_ = program.matrix.indices
    lp.a_matrix_.value_ = program.matrix.data
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    lp.integrality_ = [kinds[int(whole)] for whole in program.integer]
    return lp


def write_mps(program: SparseProgram, path: str) -> None:
    """Write ``program`` in MPS format, its columns named c0, c1, ... in order.

    Raises
    ------
    MissingComponentError
        When HiGHS, which writes it, is not installed.
    """
    engine = highs_engine()
    engine.passModel(_highs_program(program))
    engine.writeModel(path)
