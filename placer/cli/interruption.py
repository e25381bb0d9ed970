"""An interrupted command: how it ends, and that worker processes end with it."""

import sys
import threading
from typing import NoReturn

from placer.cli.terminal import say

_interrupted = threading.Event()
INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""


def interrupt(_number: int, _frame: object) -> None:
    """End as on Ctrl-C, so that worker processes end too."""
    _interrupted.set()
    raise KeyboardInterrupt


def end_interrupted(said: str) -> NoReturn:
    """Leave with the exit code of an interrupted command whose finished part was printed."""
    sys.stdout.flush()
    say(said)
    # Typer's own Exit with this code would be told from Ctrl-C no more.
    sys.exit(INTERRUPTED)


def stop_if_interrupted() -> None:
    """Raise again what a native library's callback may have swallowed."""
    if _interrupted.is_set():
        raise KeyboardInterrupt
