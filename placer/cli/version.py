"""`placer version`."""

import sys

from placer.cli.application import app


@app.command()
def version() -> None:
    """Print the version."""
    from placer import __version__

    sys.stdout.write(f"placer {__version__}\n")
