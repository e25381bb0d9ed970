"""The progress of a command: a bar on a terminal, now and then a line elsewhere, nothing under -q."""

import re
import sys
import threading
import time
from datetime import timedelta

from placer.cli.interruption import stop_if_interrupted
from placer.cli.pace import Pace
from placer.cli.terminal import quiet, say

SECONDS_BETWEEN_LINES = 10.0
"""The least between two lines of a log."""
SECONDS_BETWEEN_LOOKS = 1.0
"""Between two looks at whether a line is due while a step takes long."""
LOG_LINE = re.compile(r"\S.*(?: \.\.\.|: \d+% done(?:, about \d+ (?:s|min) left)?)")
"""What `ProgressLines` says."""


class ProgressBar:
    """Progress on stderr with the time left.

    In a log a step that takes long is told again now and then, so that nobody takes it for dead.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            ProgressColumn,
            Task,
            TaskProgressColumn,
            TextColumn,
        )
        from rich.text import Text

        class TimeLeft(ProgressColumn):
            """The time left, where the pace tells it."""

            def render(self, task: Task) -> Text:
                ends_s = task.fields["ends_s"]
                if ends_s is None:
                    return Text("-:--:--", style="progress.remaining")
                left_s = max(0, round(ends_s - time.monotonic()))
                return Text(str(timedelta(seconds=left_s)), style="progress.remaining")

        terminal = sys.stderr.isatty()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeLeft(),
            console=Console(stderr=True),
            transient=True,
            disable=quiet() or not terminal,
        )
        self._task = self._progress.add_task("", total=1.0, ends_s=None)
        now_s = time.monotonic()
        self._pace = Pace(now_s)
        self._lines = None if quiet() or terminal else ProgressLines(now_s, SECONDS_BETWEEN_LINES)
        self._lock = threading.Lock()
        self._latest: tuple[str, float, float | None] | None = None
        self._ended = threading.Event()
        self._reminder = threading.Thread(target=self._remind, daemon=True)

    def __enter__(self) -> "ProgressBar":
        self._progress.start()
        if self._lines is not None:
            self._reminder.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._progress.stop()
        if self._lines is not None:
            self._ended.set()
            self._reminder.join()

    def __call__(self, text: str, share: float) -> None:
        """Show ``text`` and the share that is done; stops here if the command was interrupted."""
        from placer.answer.visible import visible

        stop_if_interrupted()
        now_s = time.monotonic()
        left_s = self._pace.left_s(share, now_s)
        ends_s = None if left_s is None else now_s + left_s
        self._progress.update(self._task, description=visible(text), completed=share, ends_s=ends_s)
        self._latest = text, share, ends_s
        self._say_if_due()

    def _say_if_due(self) -> None:
        if self._lines is None or self._latest is None:
            return
        with self._lock:
            text, share, ends_s = self._latest
            now_s = time.monotonic()
            left_s = None if ends_s is None or ends_s <= now_s else ends_s - now_s
            line = self._lines.due(text, share, left_s, now_s)
            if line is not None:
                say(line)

    def _remind(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN_LOOKS):
            self._say_if_due()


class ProgressLines:
    """Lines for a log, at most one in ``every_s`` seconds; the work began when the clock showed ``start_s``."""

    def __init__(self, start_s: float, every_s: float) -> None:
        self._last_s = start_s
        self._every_s = every_s

    def due(self, text: str, share: float, left_s: float | None, now_s: float) -> str | None:
        """A line if one is due at ``now_s`` and work is left, with the time left where it is known."""
        if share >= 1.0 or now_s - self._last_s < self._every_s:
            return None
        self._last_s = now_s
        if share <= 0.0:
            return f"{text} ..."
        if left_s is None:
            return f"{text}: {share:.0%} done"
        return f"{text}: {share:.0%} done, about {_time_left(left_s)} left"


def _time_left(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
