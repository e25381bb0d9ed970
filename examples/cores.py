"""Which cores a process may use, while it runs."""

import contextlib
import os
from pathlib import Path


def keep_off(core: int, process: int) -> None:
    """Leave ``core`` to others: every thread of ``process`` that there is now, and those that they will start.

    Nothing changes where there is no other core.
    """
    others = os.sched_getaffinity(process) - {core}
    if others:
        for thread in Path(f"/proc/{process}/task").iterdir():
            # It may have ended.
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), others)
