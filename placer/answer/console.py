"""Printing to stderr: 100 columns, readable without colour, nothing raw from files; and the bars answers share."""

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from placer.answer.detail import Detail
from placer.answer.part import chosen_parts
from placer.answer.visible import visible

WIDTH = 100
"""Columns that every answer fits."""
LEAST_WIDTH = 60
"""Columns below which COLUMNS is not followed in a pipe."""
_BARS = "▁▂▃▄▅▆▇█"
_QUOTED = r"[(\[]*'[^'\s][^']{0,68}'\S*|[(\[]*`[^`]{1,70}`\S*"
"""Commands and values in quotes, which stay whole; an apostrophe inside a word opens none."""

_OPTION = r"(?<!\S)--[a-z][a-z-]* [A-Z0-9]\S*"
"""An option and its value, a placeholder or a number, which stay on one line."""


def sparkline(values: Sequence[float], most: float) -> str:
    """One bar per value, full height at ``most``; 0 is shown as a dot."""
    if most <= 0:
        return "·" * len(values)
    top = len(_BARS) - 1
    return "".join(_BARS[min(top, int(value / most * top + 0.5))] if value > 0 else "·" for value in values)


def wrapped(text: str, *, width: int = WIDTH, indent: str = "  ", whole: Iterable[str] = ()) -> str:
    """``text`` in lines of at most ``width`` columns, those after the first indented.

    Broken at spaces only, and never inside quotes or a part given in ``whole``: a path or command that is
    longer than a line keeps its own.
    """
    kept = "".join(re.escape(part) + r"\S*|" for part in whole if " " in part)
    words = re.findall(rf"(?<!\S)(?:{kept}{_QUOTED})(?!\S)|{_OPTION}|\S+", text)
    start = text[: len(text) - len(text.lstrip())]
    lines = [start + words[0]] if words else [""]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(indent + word)
    return "\n".join(lines)


def command_line(label: str, line: str) -> Text:
    """``label`` and a shell command, in parts as `command` writes them."""
    return command(label, [shlex.quote(word) for word in shlex.split(line)])


def command(label: str, words: Sequence[str], *, width: int = WIDTH) -> Text:
    """``label`` and a command of shell ``words``, which stays one command when it is copied.

    A command too long for a line goes on after a backslash, as a shell reads it.
    """
    first, *rest = words
    beside = len(label) + len(first) + 3 <= width
    lines = [f"{label} {first}" if beside else f"  {first}"]
    for word in rest:
        if len(lines[-1]) + len(word) + 3 <= width:
            lines[-1] += " " + word
        else:
            lines.append("  " + word)
    above = "" if beside else label + "\n"
    return Text(above + " \\\n".join(lines), no_wrap=True, overflow="ignore")


def print_line(text: str, *, indent: str = "  ", whole: Iterable[str] = ()) -> None:
    """Print one message to stderr, wrapped at spaces."""
    width = _width(Console(stderr=True))
    with _unsaid_where_refused():
        sys.stderr.write(wrapped(visible(text), width=width, indent=indent, whole=map(visible, whole)) + "\n")


def print_answer(answer: RenderableType, detail: Detail = Detail.USUAL) -> None:
    """Print to stderr what is shown at ``detail``, at most 100 columns wide; colour only on a terminal.

    Rich leaves colours out of pipes and dumb terminals, and under NO_COLOR.
    """
    width = _width(Console(stderr=True))
    console = _PlainConsole(
        stderr=True, width=width, soft_wrap=False, markup=False, emoji=False, highlight=False
    )
    # In a group, a text keeps its own way of wrapping.
    with _unsaid_where_refused():
        for line in Segment.split_lines(console.render(Group(*chosen_parts(answer, detail)))):
            console.print(Segments([*_without_trailing_blanks(line), Segment.line()]), end="", crop=False)


@contextlib.contextmanager
def _unsaid_where_refused() -> Iterator[None]:
    """Whatever stderr refuses is left unsaid, with all that follows: a closed pipe or a full disk is no result."""
    try:
        yield
    except OSError:
        # What stderr still holds would be tried again when the interpreter ends, and change the exit code.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _without_trailing_blanks(line: Sequence[Segment]) -> list[Segment]:
    """``line`` without the blanks that fill a table's last column."""
    kept = list(line)
    while kept and not kept[-1].control:
        last = kept.pop()
        if text := last.text.rstrip():
            return [*kept, Segment(text, last.style)]
    return kept


class _PlainConsole(Console):
    """A console on which only rich itself writes control sequences, never the text it is given."""

    def on_broken_pipe(self) -> None:
        """Leave it to the caller: rich would end the command with 1."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The segments of ``renderable``, their text made `visible`; lines outside tables are `wrapped`."""
        options = options or self.options
        if isinstance(renderable, Table):
            self._keep_words(renderable, options)
        loose = isinstance(renderable, Text) and renderable.overflow is None and options.overflow is None
        if isinstance(renderable, Text) and loose and not renderable.spans:
            lines = (wrapped(line, width=options.max_width) for line in renderable.plain.split("\n"))
            renderable = Text(
                "\n".join(lines), renderable.style, no_wrap=True, overflow="ignore", end=renderable.end
            )
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text, keep="\n"), segment.style)

    def _keep_words(self, table: Table, options: ConsoleOptions) -> None:
        """Let no column of ``table`` be narrower than its longest word: a cut number would be another number."""
        for column in table.columns:
            if column.max_width is None:
                cells = (column.header, *column.cells)
                column.min_width = max(Measurement.get(self, options, cell).minimum for cell in cells)


def _width(console: Console) -> int:
    """Columns to print in: the terminal's; elsewhere those that COLUMNS asks for, within reason."""
    if console.is_terminal:
        return min(WIDTH, console.width)
    asked = os.environ.get("COLUMNS", "")
    return min(WIDTH, max(LEAST_WIDTH, int(asked))) if asked.isdecimal() else WIDTH
