"""How a program of the examples ends: as the command line does, in one line and what to do, never in a traceback."""

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from placer.cli.interruption import INTERRUPTED, heed_signals, say_interrupted
from placer.cli.terminal import fail
from placer.errors import PlacerError
from placer.system_refusal import system_refusal


def end_with(main: Callable[[], int]) -> NoReturn:
    """Run ``main`` and exit with its code: 2 to 4 for what it refuses, 130 on Ctrl-C."""
    try:
        heed_signals()
        code = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        say_interrupted()
        code = INTERRUPTED
    except PlacerError as error:
        fail(error)
        code = error.exit_code
    except (OSError, MemoryError) as error:
        fail(system_refusal(error))
        if isinstance(error, BrokenPipeError):
            # What could not be written must not be tried again while the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 2
    sys.exit(code)
