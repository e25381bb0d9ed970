"""`placer report`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.interruption import stop_if_interrupted
from placer.cli.option import JsonOption
from placer.cli.progress import ProgressBar
from placer.cli.terminal import add, print_json, say
from placer.output import checked_output


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
    from placer.model.spec import read_model
    from placer.output import write_text
    from placer.profiler.profile import read_profile
    from placer.profiler.trace.file import read_trace
    from placer.reports.page import page
    from placer.reports.picture import write_pictures
    from placer.reports.report import make_report
    from placer.units import gib

    checked_output(output, [path for path in (placement, profile, trace) if path is not None])
    with ProgressBar() as bar:
        made = make_report(
            placement,
            profile=None if profile is None else read_profile(profile),
            trace=None if trace is None else read_trace(trace),
            model=None if model is None else read_model(model),
            progress=bar,
        )
        bar("drawing", 0.9)
        text = page(made)
        pictures = () if png is None else write_pictures(made, png)
    stop_if_interrupted()
    write_text(output, text)
    if json_output:
        absent = {name: {"why": part.why, "cure": part.cure} for name, part in made.absent.items()}
        print_json(
            {
                "report": str(output),
                "bytes": output.stat().st_size,
                "pictures": [str(path) for path in pictures],
                "absent": absent,
            }
        )
        return
    say(made.verdict[0])
    say(f"{output}: {gib(output.stat().st_size)}, open it in a browser")
    for path in pictures:
        say(str(path))
    for name, part in made.absent.items():
        add(f"not shown: {name}: {part.why}; {part.cure}")
