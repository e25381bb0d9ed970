"""`placer.bench`: the solver on instances, against others."""

from collections.abc import Sequence
from pathlib import Path

from placer.answer.bench import write_csv
from placer.api.checked import checked
from placer.api.choice import choice, names
from placer.api.number import check_seed
from placer.api.opened import Source, path_or_none
from placer.api.progress import Progress, silent
from placer.api.time_limit import solver_seconds
from placer.errors import BadInputError
from placer.output import checked_output
from placer.solvers.bench.bench import BenchReport
from placer.solvers.bench.bench import bench as run_bench
from placer.solvers.bench.selection import selected
from placer.solvers.bench.solver_run import Limits

CLOCKS = {"wall": False, "cpu": True}
"""Whether rivals are limited by their own CPU time, by the name of the clock."""


@checked
def bench(
    instances: Sequence[Source] = (),
    *,
    family: str | Sequence[str] = (),
    size: str | None = None,
    seed: int = 0,
    time_limit: float | None = None,
    prove: bool = False,
    clock: str = "wall",
    rivals: str | Sequence[str] = (),
    gap: float | None = None,
    csv: Source | None = None,
    milestones: Source | None = None,
    progress: Progress = silent,
) -> BenchReport:
    """Solve the instances in files, or one generated for each family: objective, bound and gap.

    With ``rivals`` ("highs", "cbc") also who is ahead at equal time. Ctrl-C ends it with what is finished.

    Raises
    ------
    BadInputError
        When an instance cannot be used, or a name or a limit is not known.
    MissingComponentError
        When a rival is not installed.
    """
    check_seed(seed)
    paths = [Path(each) for each in instances]
    rows_path, milestones_path = path_or_none(csv), path_or_none(milestones)
    for flag, path in (("--csv", rows_path), ("--milestones", milestones_path)):
        if path is not None:
            checked_output(path, paths, flag)
    for name in (chosen_rivals := names(rivals)):
        choice(name, {"highs": None, "cbc": None}, "--rivals")
    if milestones is not None and not chosen_rivals:
        raise BadInputError("--milestones are those of rivals", "add --rivals highs,cbc")
    limits = Limits(
        solver_seconds(time_limit, prove), gap=gap or 0.0, cpu=choice(clock, CLOCKS, "--clock"), prove=prove
    )
    chosen = selected(paths, families=names(family), size=size, seed=seed, progress=progress)
    report = run_bench(chosen, limits, rivals=chosen_rivals, progress=progress)
    if not report.rows:
        raise KeyboardInterrupt
    if rows_path is not None:
        write_csv(report.rows, rows_path)
    if milestones_path is not None:
        write_csv(report.milestones, milestones_path, "--milestones")
    return report
