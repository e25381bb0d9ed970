"""Printing answers: to stderr, 100 columns, readable without colour; and the bars they share."""

from collections.abc import Sequence

from rich.console import Console, RenderableType

WIDTH = 100
"""Columns that every answer fits."""
_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], most: float) -> str:
    """One bar per value, full height at ``most``; 0 is shown as a dot."""
    if most <= 0:
        return "·" * len(values)
    top = len(_BARS) - 1
    return "".join(_BARS[min(top, int(value / most * top + 0.5))] if value > 0 else "·" for value in values)


def print_answer(answer: RenderableType) -> None:
    """Print to stderr, at most 100 columns wide; colour only on a terminal (and never under NO_COLOR)."""
    console = Console(stderr=True)
    width = min(WIDTH, console.width) if console.is_terminal else WIDTH
    Console(stderr=True, width=width, soft_wrap=False).print(answer, highlight=False)
