"""The `placer` program from its first moment on: it can be interrupted while its modules are still being loaded."""

import os
import signal

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED = 130


def main() -> None:
    """Run the command line; nothing that an interrupt can meet on the way in or out ends in a traceback."""
    # Under nohup a command outlives its terminal.
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, _leave)
    try:
        from placer.cli import main as command  # noqa: PLC0415  (it loads for a while)

        command()
    except KeyboardInterrupt:
        _leave()
    finally:
        # While the interpreter ends, a handler in Python would be heard in the middle of anything.
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


def _leave(_number: int = 0, _frame: object = None) -> None:
    """End at once: nothing has been begun, and modules may be half loaded."""
    os.write(2, b"interrupted: no result was written\n")
    os._exit(_INTERRUPTED)
