"""The entry point: signals, exit codes, and every error as one line and what to do."""

import errno
import os
import sys
from typing import Any

import typer

from placer.answer.spelling import spell_out
from placer.cli.application import app
from placer.cli.argument import check_nothing_empty
from placer.cli.interruption import INTERRUPTED, _interrupted, heed_signals, say_interrupted
from placer.cli.terminal import fail, reset_detail
from placer.cli.usage import usage_error
from placer.errors import BadInputError, PlacerError
from placer.output import forget_written
from placer.system_refusal import system_refusal

# Typer may carry its own copy of click, so click's exceptions are reached through Typer's.
_UsageError: Any = typer.BadParameter.__mro__[2]
_NoArgumentsError: Any = getattr(sys.modules[_UsageError.__module__], "NoArgsIsHelpError", ())


def main() -> None:
    """Run the command line; exit codes: 0 done, 2 bad input, 3 infeasible, 4 missing component, 130 interrupted."""
    _interrupted.clear()
    forget_written()
    reset_detail()
    # Python leaves a closed standard stream as None. What is printed on stdout is asked for: it must not vanish, so
    # that stdout refuses it; stderr has nobody left to tell.
    stdout_closed = sys.stdout is None
    if stdout_closed:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        spell_out(stream)
    try:
        heed_signals()
        check_nothing_empty(sys.argv[1:])
        code = app(prog_name="placer", standalone_mode=False)
        if code == INTERRUPTED:
            # Typer turns Ctrl-C into this code by itself.
            raise KeyboardInterrupt
        # A full or closed stdout shows only when it is flushed.
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except MemoryError as error:
        fail(system_refusal(error))
        sys.exit(2)
    except OSError as error:
        # Whatever the operating system refuses: names too long, a full stdout, a vanished folder.
        if stdout_closed and error.errno == errno.EBADF:
            refusal = BadInputError(
                "stdout is closed: what was to be printed there is lost",
                "send it to a file or a pipe",
            )
        else:
            refusal = system_refusal(error)
        fail(refusal)
        # What could not be written must not be tried again while the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
    except _UsageError as error:
        if isinstance(error, _NoArgumentsError):
            sys.stderr.write(error.format_message() + "\n")
        else:
            fail(usage_error(error, sys.argv[1:]))
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        say_interrupted()
        sys.exit(INTERRUPTED)
    except PlacerError as error:
        fail(error)
        sys.exit(error.exit_code)
