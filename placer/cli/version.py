"""`placer version` and `placer --version`."""

import sys
from typing import Annotated

import typer

from placer.cli.application import app


@app.command()
def version() -> None:
    """Print the version."""
    from placer import __version__

    sys.stdout.write(f"placer {__version__}\n")


def _print_and_exit(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def before_commands(
    asked: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_and_exit, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before a command."""
