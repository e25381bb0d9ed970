"""An answer as a terminal of 100 columns without colour would show it."""

import contextlib
import io

from rich.console import RenderableType

from placer.answer.console import print_answer


def show(answer: RenderableType) -> None:
    """Print ``answer`` into nothing that is kept."""
    with contextlib.redirect_stderr(io.StringIO()):
        print_answer(answer)
