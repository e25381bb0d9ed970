"""Runs the commands that a document shows, in order, and holds what they print against what the document shows.

A block ``sh`` is run by bash; the block ``text`` right behind it is what is printed, stdout and stderr together. There
``…`` stands for anything, numbers may be off by 2 %, and in a block ``text machine`` numbers and units of time may be
any: they depend on the machine. Where one of several such blocks in a row is not as shown, all of them are taken again:
a busy machine spoils a timing. ``sh exit=3`` ends with another exit code than 0.

    python -m placer.examples.shown_output docs/tutorial.md [--write] [--folder FOLDER]
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import groupby
from pathlib import Path

from placer.cli.progress import LOG_LINE
from placer.errors import BadInputError
from placer.examples.ending import end_with
from placer.input import checked_input
from placer.output import write_text

NUMBERS_OFF = 0.02
"""Relative difference up to which a printed number is the one shown: sums differ in their last digits by machine."""
COMMAND_SECONDS = 300.0
MOST_TIMINGS = 3
"""Times that steps which time the machine are taken before they count as not as shown."""
LEFT_OUT = "…"
_STEP = re.compile(
    r"^```sh(?: exit=(?P<code>\d+))?\n(?P<command>.*?)^```\n"
    r"(?:\n*```text(?P<machine> machine)?\n(?P<shown>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
_NUMBER = r"[+-]?\d[\d,]*(?:\.\d+)?"
_BAR = r"[·▁▂▃▄▅▆▇█]+"
_TIME_UNIT = r"(?<=\d )(?:µs|ms|s)\b"


@dataclass(frozen=True)
class Step:
    """Commands of a document and what it shows of their output.

    ``shown`` is None where it shows nothing, and ``span`` where that stands in the document; ``any_numbers``: numbers
    depend on the machine.
    """

    command: str
    exit_code: int
    shown: str | None
    any_numbers: bool
    span: tuple[int, int]


@dataclass(frozen=True)
class Taken:
    """A step that was taken: what it printed, and how it ended."""

    step: Step
    printed: str
    exit_code: int

    @property
    def as_shown(self) -> bool:
        """Whether it ended and printed as the document says."""
        return self.exit_code == self.step.exit_code and (
            self.step.shown is None
            or same_output(self.step.shown, self.printed, any_numbers=self.step.any_numbers)
        )

    def difference(self) -> str:
        """What the document shows against what was printed, as lines for people."""
        lines = unified_diff(
            (self.step.shown or "").splitlines(), self.printed.splitlines(), "shown", "printed", lineterm=""
        )
        return "\n".join([f"$ {self.step.command.strip()}", f"exit code {self.exit_code}", *lines])


def steps_of(document: str) -> list[Step]:
    """The steps of a Markdown document, in order."""
    return [
        Step(
            found["command"],
            int(found["code"] or 0),
            found["shown"],
            found["machine"] is not None,
            found.span("shown"),
        )
        for found in _STEP.finditer(document)
    ]


def same_output(shown: str, printed: str, *, any_numbers: bool) -> bool:
    """Whether ``printed`` is what is ``shown``, where lines may break elsewhere and bars may be of another length.

    With ``any_numbers`` the machine's times may be any, in any unit.
    """
    if any_numbers:
        shown, printed = (re.sub(_TIME_UNIT, "s", text) for text in (shown, printed))
    parts = re.split(rf"({_NUMBER}|{_BAR}|{LEFT_OUT}|\s+)", shown.strip())
    pattern = ""
    for part in parts:
        if re.fullmatch(_NUMBER, part):
            pattern += f"({_NUMBER})"
        elif re.fullmatch(_BAR, part):
            pattern += _BAR
        elif part == LEFT_OUT:
            pattern += ".*?"
        else:
            pattern += r"\s+" if part.isspace() else re.escape(part)
    # What is left out may be nothing, with the spaces around it.
    found = re.fullmatch(pattern.replace(r"\s+.*?\s+", r"\s.*?"), printed.strip(), re.DOTALL)
    if found is None:
        return False
    numbers = [part for part in parts if re.fullmatch(_NUMBER, part)]
    return any_numbers or all(
        _near(_value(one), _value(other)) for one, other in zip(numbers, found.groups(), strict=True)
    )


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= NUMBERS_OFF * max(abs(one), abs(other))


def walk(steps: Sequence[Step], folder: Path, environment: dict[str, str]) -> Iterator[Taken]:
    """Take the steps one after the other in ``folder``, with one thread for arithmetic.

    Raises
    ------
    subprocess.TimeoutExpired
        When a step takes longer than ``COMMAND_SECONDS``.
    """
    for timed, group in groupby(steps, key=lambda step: step.any_numbers):
        in_order = list(group)
        if timed:
            yield from _timed(in_order, folder, environment)
        else:
            yield from (_taken(step, folder, environment) for step in in_order)


def _timed(steps: Sequence[Step], folder: Path, environment: dict[str, str]) -> list[Taken]:
    """The steps as taken when all were as shown, or for the last time."""
    for _ in range(MOST_TIMINGS):
        taken = [_taken(step, folder, environment) for step in steps]
        if all(each.as_shown for each in taken):
            break
    return taken


def _taken(step: Step, folder: Path, environment: dict[str, str]) -> Taken:
    path = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    done = subprocess.run(
        ["bash", "-e", "-c", step.command],
        cwd=folder,
        env={**environment, "NO_COLOR": "1", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1", "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=COMMAND_SECONDS,
        check=False,
    )
    lines = [line.rstrip() for line in done.stdout.splitlines() if not LOG_LINE.fullmatch(line)]
    return Taken(step, "".join(f"{line}\n" for line in lines), done.returncode)


def with_outputs(document: str, taken: Sequence[Taken]) -> str:
    """The document with what was printed in place of what is no longer so, as far as it was shown."""
    for each in reversed(taken):
        if each.step.shown is not None and not each.as_shown:
            start, end = each.step.span
            document = document[:start] + _shortened_as(each.step.shown, each.printed) + document[end:]
    return document


def _shortened_as(shown: str, printed: str) -> str:
    """As many lines of ``printed`` before and behind a line ``…`` as are ``shown``; all where there is no such line."""
    lines, before = printed.splitlines(keepends=True), shown.splitlines()
    if before.count(LEFT_OUT) != 1:
        return printed
    first = before.index(LEFT_OUT)
    last = len(before) - first - 1
    return "".join([*lines[:first], f"{LEFT_OUT}\n", *lines[len(lines) - last :]])


def _text(path: Path) -> str:
    cure = "give a Markdown document with commands and what they print"
    try:
        return checked_input(path, what="document", cure=cure).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadInputError(f"{path} is no UTF-8 text", cure) from None


def main(arguments: Sequence[str]) -> int:
    """Walk through a document in an empty folder that holds the examples; 1 where it is not as shown."""
    parser = argparse.ArgumentParser(prog="python -m placer.examples.shown_output", description=__doc__)
    parser.add_argument("document", type=Path, help="Markdown document with its commands")
    parser.add_argument("--write", action="store_true", help="put what is printed into the document")
    parser.add_argument("--folder", type=Path, help="new folder to work in, and to keep")
    given = parser.parse_args(arguments)
    document = _text(given.document)
    with tempfile.TemporaryDirectory() as passing:
        folder = given.folder or Path(passing)
        if given.folder is not None and folder.exists():
            raise BadInputError(f"--folder {folder} is there already", "name a folder that is not there yet")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "examples").symlink_to(Path(__file__).resolve().parent)
        taken = []
        for each in walk(steps_of(document), folder, dict(os.environ)):
            taken.append(each)
            print(
                f"as shown: {each.step.command.strip()}" if each.as_shown else each.difference(),
                file=sys.stderr,
            )
    if given.write:
        write_text(given.document, with_outputs(document, taken))
    failed = [each for each in taken if each.exit_code != each.step.exit_code]
    return int(bool(failed) or not (given.write or all(each.as_shown for each in taken)))


if __name__ == "__main__":
    end_with(lambda: main(sys.argv[1:]))
