"""The progress bar of a command."""

import sys

from placer.cli.interruption import stop_if_interrupted


class ProgressBar:
    """A progress bar on stderr with the time left; silent where stderr is not a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("", total=1.0)

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
