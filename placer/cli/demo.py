"""`placer demo`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.progress import ProgressBar
from placer.cli.terminal import show


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for everything it writes.")] = Path(
        "placer-demo"
    ),
) -> None:
    """Run the whole job on the bundled example."""
    from placer.demo import run_demo

    with ProgressBar() as bar:
        result = run_demo(output, progress=bar)
    for answer in result.answers:
        show(answer)
