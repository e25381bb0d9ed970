"""Which cores a process may use while it runs, and how busy cores are meanwhile."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil


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


@contextlib.contextmanager
def busy_share(engine_core: int) -> Iterator[list[float]]:
    """Share of the time in the block for which the cores but ``engine_core`` were busy.

    The list gets it at the end; 0 where there is no other core.
    """
    others = [core for core in sorted(os.sched_getaffinity(0)) if core != engine_core]
    found: list[float] = []
    before = psutil.cpu_times(percpu=True)
    yield found
    spans = [
        (old, new)
        for core, (old, new) in enumerate(zip(before, psutil.cpu_times(percpu=True), strict=True))
        if core in others
    ]
    whole = sum(sum(new) - sum(old) for old, new in spans)
    idle = sum(new.idle + new.iowait - old.idle - old.iowait for old, new in spans)
    found.append(1.0 - idle / whole if whole else 0.0)
