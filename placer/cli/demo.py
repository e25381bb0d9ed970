"""`placer demo`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.interruption import INTERRUPTED
from placer.cli.progress import ProgressBar
from placer.cli.terminal import say, show


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for everything it writes.")] = Path(
        "placer-demo"
    ),
) -> None:
    """Run the whole job on the bundled example."""
    from placer.answer.console import command_line
    from placer.demo import DemoInterrupted, run_demo

    try:
        with ProgressBar() as bar:
            result = run_demo(output, progress=bar)
    except DemoInterrupted as stop:
        say(f"interrupted: {stop}")
        if stop.command is not None:
            show(command_line("go on with:", stop.command))
        sys.exit(INTERRUPTED)
    for answer in result.answers:
        show(answer)
