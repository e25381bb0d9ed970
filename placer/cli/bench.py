"""`placer bench`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.argument import choice, solver_seconds
from placer.cli.interruption import end_interrupted
from placer.cli.option import JsonOption, ProveOption, SeedOption
from placer.cli.progress import ProgressBar
from placer.cli.terminal import print_json, say, show
from placer.errors import BadInputError
from placer.output import checked_output


@app.command()
def bench(
    instances: Annotated[
        list[Path] | None,
        typer.Argument(help="Solver instances (.npz); without any, one generated for each family."),
    ] = None,
    family: Annotated[
        str, typer.Option("--family", help="Generate these, separated by commas: balanced,multi-level")
    ] = "",
    size: Annotated[
        str | None, typer.Option("--size", help="LAYERSxEXPERTSxSTEPS of generated ones: 92x896x32.")
    ] = None,
    seed: SeedOption = 0,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write the generated instances to a folder; solve none.")
    ] = None,
    growth: Annotated[
        bool, typer.Option("--growth", help="Fit how time grows with layers, experts and steps.")
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", help="Seconds per solver and instance (30; 120 with --prove)."),
    ] = None,
    prove: ProveOption = False,
    clock: Annotated[
        str, typer.Option("--clock", help="What limits rivals: wall, or cpu (their own CPU time).")
    ] = "wall",
    rivals: Annotated[str, typer.Option("--rivals", help="highs,cbc")] = "",
    gap: Annotated[
        float | None,
        typer.Option("--gap", help="Relative gap to stop at; 0 unless given, 0.005 with --growth."),
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the rows as CSV.")] = None,
    milestones: Annotated[
        Path | None,
        typer.Option("--milestones", help="Write as CSV what the rivals held after 5, 10, 30 ... seconds."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Solve instances and print objective, bound and gap; with rivals, who is ahead at equal time."""
    from placer.answer.bench import bench_answer, write_csv
    from placer.answer.growth import growth_answer
    from placer.solvers.bench.bench import bench as run_bench
    from placer.solvers.bench.growth import FAMILIES
    from placer.solvers.bench.growth import growth as run_growth
    from placer.solvers.bench.instance_file import write_instances
    from placer.solvers.bench.selection import selected
    from placer.solvers.bench.solver_run import Limits

    for flag, output in (("--csv", csv), ("--milestones", milestones)):
        if output is not None:
            checked_output(output, instances or [], flag)
    names = [name for name in rivals.split(",") if name]
    for name in names:
        choice(name, {"highs": None, "cbc": None}, "--rivals")
    if milestones is not None and not names:
        raise BadInputError("--milestones are those of rivals", "add --rivals highs,cbc")
    on_cpu = choice(clock, {"wall": False, "cpu": True}, "--clock")
    limit_s = solver_seconds(time_limit, prove)
    if growth:
        for flag, given in (
            ("instance files", instances),
            ("--size", size),
            ("--write", write),
            ("--rivals", names),
            ("--milestones", milestones),
        ):
            if given:
                raise BadInputError(
                    f"--growth solves a sweep of sizes of its own with the structured solver: {flag} cannot be used",
                    f"leave out {flag} or --growth",
                )
        limits = Limits(limit_s, gap=0.005 if gap is None else gap, cpu=on_cpu, prove=prove)
        with ProgressBar() as bar:
            grown = run_growth(
                limits,
                families=[name for name in family.split(",") if name] or FAMILIES,
                seed=seed,
                progress=bar,
            )
        if not any(one.points for one in grown):
            raise KeyboardInterrupt
        if csv is not None:
            write_csv([point for one in grown for point in one.points], csv)
        if json_output:
            print_json({"growth": [asdict(one) for one in grown]})
        else:
            show(growth_answer(grown))
        if any(one.interrupted for one in grown):
            end_interrupted(f"interrupted after {sum(len(one.points) for one in grown)} solves")
        return
    with ProgressBar() as bar:
        chosen = selected(
            instances or [],
            families=[name for name in family.split(",") if name],
            size=size,
            seed=seed,
            progress=bar,
        )
    if write is not None:
        for path in write_instances(chosen, write):
            say(f"{path}")
        return
    with ProgressBar() as bar:
        limits = Limits(limit_s, gap=gap or 0.0, cpu=on_cpu, prove=prove)
        report = run_bench(chosen, limits, rivals=names, progress=bar)
    if not report.rows:
        raise KeyboardInterrupt
    if csv is not None:
        write_csv(report.rows, csv)
    if milestones is not None:
        write_csv(report.milestones, milestones, "--milestones")
    if json_output:
        print_json(
            {
                "rows": [asdict(row) for row in report.rows],
                "comparison": [asdict(row) for row in report.comparison],
            }
        )
    else:
        show(bench_answer(report))
    if report.interrupted:
        done = len({row.name for row in report.rows})
        end_interrupted(f"interrupted after {done} of {len(chosen)} instances")
