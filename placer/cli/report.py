"""`placer report`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.option import JsonOption
from placer.cli.progress import ProgressBar
from placer.cli.terminal import add, print_json, say


@app.command()
def report(
    placement: Annotated[Path, typer.Argument(help="placement.json")],
    profile: Annotated[
        Path | None, typer.Option("--profile", help="Profile: adds predicted against measured times.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="Trace to score the plan on, by domain; with --model and --profile."),
    ] = None,
    model: Annotated[Path | None, typer.Option("--model", help="Checkpoint directory, for --trace.")] = None,
    png: Annotated[
        Path | None, typer.Option("--png", help="Folder for the figures as PNG, for papers and slides.")
    ] = None,
    json_output: JsonOption = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="Page to write.")] = Path("report.html"),
) -> None:
    """Write one HTML page that shows a placement and all it rests on; it needs no network."""
    from placer.api.report import report as draw_report
    from placer.units import gib

    with ProgressBar() as bar:
        drawn = draw_report(
            placement, profile=profile, trace=trace, model=model, png=png, output=output, progress=bar
        )
    if json_output:
        print_json(drawn.document())
        return
    say(drawn.report.verdict[0])
    say(f"{output}: {gib(drawn.size_bytes)}, open it in a browser")
    for note in drawn.report.notes:
        if note.startswith("warning: "):
            add(note)
    for path in drawn.pictures:
        say(str(path))
    for name, part in drawn.report.absent.items():
        add(f"not shown: {name}: {part.why}; {part.cure}")
