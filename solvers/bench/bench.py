"""`placer bench`: instances solved by the structured solver and its rivals, against records and each other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from placer.errors import BadInputError
from placer.known_name import unknown_value
from placer.solvers.bench.comparison import LIMITS_S, ComparisonRow, comparison
from placer.solvers.bench.instance import Instance
from placer.solvers.bench.records import BestKnown, best_known, recorded_highs
from placer.solvers.bench.rival import RIVALS
from placer.solvers.bench.solver_run import STRUCTURED, Limits, SolverRun, run_solver
from placer.solvers.bench.trajectory import at_limit
from placer.solvers.solution import SolverStatus

Progress = Callable[[str, float], None]
"""Told what is being done and the share of the whole that is done."""


@dataclass(frozen=True)
class BenchRow:
    """One instance and one solver.

    Attributes
    ----------
    lp_us
        The linear relaxation's value where the solver reached it. The structured solver's relaxation is
        stronger than the rivals' program: it knows what a layer costs all hot, all cold and mixed.
    gap
        (objective - bound) / what a placement can change of the objective.
    seconds, cpu_seconds, peak_bytes
        As in `SolverRun`.
    best_known_us, best_known_by
        The lowest objective on record or found in this run, and by whom.
    sha256
        Of the instance: its key among the records.
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
    cpu_seconds: float
    best_known_us: float | None
    best_known_by: str | None
    sha256: str


@dataclass(frozen=True)
class MilestoneRow:
    """What a rival held at one of `LIMITS_S`, on the clock that it was limited by."""

    sha256: str
    name: str
    solver: str
    limit_s: float
    objective_us: float | None
    bound_us: float | None


@dataclass(frozen=True)
class BenchReport:
    """Everything that a benchmark found; ``milestones`` are those of rivals that ran now.

    An ``interrupted`` one holds the instances that were finished by every solver, of the number ``asked``.
    """

    rows: tuple[BenchRow, ...]
    comparison: tuple[ComparisonRow, ...]
    milestones: tuple[MilestoneRow, ...]
    asked: int
    interrupted: bool = False

    def document(self) -> dict[str, Any]:
        """The ``bench --json`` document."""
        return {
            "rows": [_explained(row, _ROW_NULLS) for row in self.rows],
            "comparison": [_explained(row, _COMPARISON_NULLS) for row in self.comparison],
        }


_ROW_NULLS = {
    "objective_us": "no placement was found",
    "lp_us": "the solver ended before its relaxation was solved, or states none",
    "bound_us": "nothing was proven",
    "gap": "a gap needs a placement and a bound",
    "best_known_us": "no placement is on record, and none was found",
    "best_known_by": "no placement is on record, and none was found",
}
_COMPARISON_NULLS = {
    "first_us": "no placement was found within the first limit",
    "structured_us": "no placement was found within the limit",
    "highs_us": "HiGHS held no placement at the limit",
    "highs_bound_us": "HiGHS had proven nothing at the limit",
}


def _explained(row: BenchRow | ComparisonRow, reasons: Mapping[str, str]) -> dict[str, Any]:
    plain = asdict(row)
    return {**plain, "null_reasons": {field: why for field, why in reasons.items() if plain[field] is None}}


def bench(
    instances: Sequence[Instance],
    limits: Limits,
    *,
    rivals: Sequence[str] = (),
    progress: Progress | None = None,
) -> BenchReport:
    """Solve every instance with the structured solver and with each of ``rivals``.

    Where HiGHS runs, or a run of it is on record, both are compared at equal time: the structured solver
    also runs with the first of `LIMITS_S`, and with each within the limit where HiGHS would be ahead of
    what it has so far. Ctrl-C ends the benchmark with the instances that are finished.

    Raises
    ------
    BadInputError
        When a rival is not known, a limit is out of range or a solver's process was killed.
    MissingComponentError
        When a rival is not installed.
    """
    unknown = [name for name in rivals if name not in RIVALS]
    if unknown:
        raise unknown_value("rival", unknown[0], RIVALS)
    if not 0 < limits.time_limit_s < 1e6 or not 0 <= limits.gap < 1:
        raise BadInputError(
            f"time limit {limits.time_limit_s:g} s, gap {limits.gap:g}",
            "give seconds above 0 and a gap from 0 to below 1",
        )
    rows: list[BenchRow] = []
    compared: list[ComparisonRow] = []
    milestones: list[MilestoneRow] = []
    turns, turn = len(instances) * (1 + len(rivals)), 0
    for instance in instances:
        runs: dict[str, SolverRun] = {}
        try:
            for solver in (STRUCTURED, *rivals):
                if progress is not None:
                    progress(f"{instance.name}: {solver}", turn / turns)
                runs[solver] = run_solver(instance, solver, limits)
                turn += 1
            own = {limits.time_limit_s: runs[STRUCTURED]}
            compared += _compared(instance, runs, own, limits)
        except KeyboardInterrupt:
            return BenchReport(
                tuple(rows), tuple(compared), tuple(milestones), len(instances), interrupted=True
            )
        for solver in rivals:
            milestones += _milestones(instance, runs[solver], limits)
        rows += _rows(instance, runs, own)
    return BenchReport(tuple(rows), tuple(compared), tuple(milestones), len(instances))


def _rows(instance: Instance, runs: dict[str, SolverRun], own: dict[float, SolverRun]) -> list[BenchRow]:
    known = best_known(instance.sha256)
    found = [
        BestKnown(run.objective_us, run.solver, run.seconds)
        for run in (*runs.values(), *own.values())
        if run.objective_us is not None
    ]
    now = min(found, key=lambda one: one.objective_us, default=None)
    # A record stands until it is beaten by more than rounding.
    if known is None or (now is not None and now.objective_us < known.objective_us * (1 - 1e-9)):
        known = now
    return [
        BenchRow(
            name=instance.name,
            solver=run.solver,
            objective_us=run.objective_us,
            lp_us=run.lp_us,
            bound_us=run.bound_us,
            gap=run.gap,
            seconds=run.seconds,
            peak_bytes=run.peak_bytes,
            status=run.status.value,
            cpu_seconds=run.cpu_seconds,
            best_known_us=None if known is None else known.objective_us,
            best_known_by=None if known is None else f"{known.found_by} in {known.seconds:.0f} s",
            sha256=instance.sha256,
        )
        for run in runs.values()
    ]


def _compared(
    instance: Instance, runs: dict[str, SolverRun], own: dict[float, SolverRun], limits: Limits
) -> list[ComparisonRow]:
    """The comparison with HiGHS; adds the runs that it needs to ``own``."""
    live = "highs" in runs
    highs = runs["highs"].milestones if live else recorded_highs(instance.sha256)
    if not highs:
        return []
    cpu = limits.cpu or not live
    until_s = limits.time_limit_s if live else highs[-1].cpu_seconds

    def rows() -> list[ComparisonRow]:
        return comparison(instance.name, own, highs, cpu=cpu, until_s=until_s, recorded=not live)

    for limit in LIMITS_S:
        if limit >= limits.time_limit_s:
            break
        ahead = [row for row in rows() if row.limit_s == limit and not row.never_worse]
        if limit == LIMITS_S[0] or ahead:
            own[limit] = _within(instance, runs[STRUCTURED], replace(limits, time_limit_s=limit))
    return rows()


def _within(instance: Instance, longest: SolverRun, limits: Limits) -> SolverRun:
    """A run that keeps a shorter limit; the longest one where it was done by then of itself."""
    if longest.status is not SolverStatus.TIME_LIMIT and longest.seconds <= limits.time_limit_s:
        return longest
    return run_solver(instance, STRUCTURED, limits)


def _milestones(instance: Instance, run: SolverRun, limits: Limits) -> list[MilestoneRow]:
    return [
        MilestoneRow(instance.sha256, instance.name, run.solver, limit, held.objective_us, held.bound_us)
        for limit in LIMITS_S
        if limit <= limits.time_limit_s
        and (held := at_limit(run.milestones, limit, cpu=limits.cpu)) is not None
    ]
