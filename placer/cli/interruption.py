"""An interrupted command: how it ends, and that worker processes end with it."""

import signal
import sys
import threading
from typing import NoReturn

from placer.cli.terminal import say
from placer.output import written

_interrupted = threading.Event()
INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""


def interrupt(_number: int, _frame: object) -> None:
    """End as on Ctrl-C, so that worker processes end too."""
    _interrupted.set()
    raise KeyboardInterrupt


def heed_signals() -> None:
    """Let SIGTERM and SIGHUP end the program as Ctrl-C does, but for those that it was started to ignore."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Under nohup a command outlives its terminal.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def say_interrupted() -> None:
    """Name what an interrupted program had written."""
    said = ", ".join(map(str, written()))
    say(f"interrupted: {f'written before that: {said}' if said else 'no result was written'}")


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
