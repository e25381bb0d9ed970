"""`placer bench`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.interruption import end_interrupted
from placer.cli.option import JsonOption, ProveOption, SeedOption
from placer.cli.progress import ProgressBar
from placer.cli.terminal import print_json, say, show
from placer.errors import BadInputError


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
    from placer.answer.bench import bench_answer
    from placer.answer.growth import growth_answer
    from placer.api.bench import bench as run_bench
    from placer.api.bench_growth import bench_growth
    from placer.api.bench_instances import bench_instances

    if growth:
        for flag, given in (
            ("instance files", instances),
            ("--size", size),
            ("--write", write),
            ("--rivals", rivals),
            ("--milestones", milestones),
        ):
            if given:
                raise BadInputError(
                    f"--growth solves a sweep of sizes of its own with the structured solver: {flag} cannot be used",
                    f"leave out {flag} or --growth",
                )
        with ProgressBar() as bar:
            grown = bench_growth(
                family=family,
                seed=seed,
                time_limit=time_limit,
                prove=prove,
                clock=clock,
                gap=gap,
                csv=csv,
                progress=bar,
            )
        if json_output:
            print_json(grown.document())
        else:
            show(growth_answer(grown.families))
        if grown.interrupted:
            end_interrupted(f"interrupted after {grown.solves} solves")
        return
    if write is not None:
        for flag, value in (
            ("--csv", csv),
            ("--rivals", rivals),
            ("--milestones", milestones),
            ("--json", json_output),
        ):
            if value:
                raise BadInputError(
                    f"--write solves nothing: {flag} cannot be used", f"leave out {flag} or --write"
                )
        with ProgressBar() as bar:
            written = bench_instances(
                instances or (), write=write, family=family, size=size, seed=seed, progress=bar
            )
        for path in written:
            say(f"{path}")
        return
    with ProgressBar() as bar:
        report = run_bench(
            instances or (),
            family=family,
            size=size,
            seed=seed,
            time_limit=time_limit,
            prove=prove,
            clock=clock,
            rivals=rivals,
            gap=gap,
            csv=csv,
            milestones=milestones,
            progress=bar,
        )
    if json_output:
        print_json(report.document())
    else:
        show(bench_answer(report))
    if report.interrupted:
        done = len({row.name for row in report.rows})
        end_interrupted(f"interrupted after {done} of {report.asked} instances")
