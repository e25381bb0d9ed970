"""The progress of a command: a bar on a terminal, now and then a line elsewhere, nothing under -q."""

import sys
import time

from placer.cli.interruption import stop_if_interrupted
from placer.cli.terminal import quiet, say

SECONDS_BETWEEN_LINES = 10.0
"""The least between two lines of a log."""
LEAST_SHARE = 0.03
"""Share of the work below which the time left is not said: it would be far off."""


class ProgressBar:
    """Progress on stderr with the time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            Task,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text

        class TimeLeft(TimeRemainingColumn):
            """The time left, once so much is done that it can be told."""

            def render(self, task: Task) -> Text:
                return Text("-:--:--") if task.completed < LEAST_SHARE else super().render(task)

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
        self._task = self._progress.add_task("", total=1.0)
        self._lines = None if quiet() or terminal else ProgressLines(time.monotonic(), SECONDS_BETWEEN_LINES)

    def __enter__(self) -> "ProgressBar":
        self._progress.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._progress.stop()

    def __call__(self, text: str, share: float) -> None:
        """Show ``text`` and the share that is done; stops here if the command was interrupted."""
        from placer.answer.visible import visible

        stop_if_interrupted()
        self._progress.update(self._task, description=visible(text), completed=share)
        if self._lines is not None and (line := self._lines.due(text, share, time.monotonic())) is not None:
            say(line)


class ProgressLines:
    """Lines for a log, at most one in ``every_s`` seconds; the work began when the clock showed ``start_s``."""

    def __init__(self, start_s: float, every_s: float) -> None:
        self._start_s = self._last_s = start_s
        self._every_s = every_s

    def due(self, text: str, share: float, now_s: float) -> str | None:
        """A line if one is due at ``now_s`` and work is left, with the time left where the ``share`` done tells."""
        if share >= 1.0 or now_s - self._last_s < self._every_s:
            return None
        self._last_s = now_s
        if share <= 0.0:
            return f"{text} ..."
        if share < LEAST_SHARE:
            return f"{text}: {share:.0%} done"
        left_s = (now_s - self._start_s) * (1.0 / share - 1.0)
        return f"{text}: {share:.0%} done, about {_time_left(left_s)} left"


def _time_left(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
