"""Arrival times from a file: one per line, or a CSV that may give each request's lengths too."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from placer.errors import BadInputError
from placer.input import checked_input
from placer.workload import MOST_ARRIVALS

TIME, PROMPT, OUTPUT = "arrival_s", "prompt_tokens", "output_tokens"
MOST_TOKENS = 10_000_000
_MOST_BYTES = 16 * 2**20
_CURE = f"give one time in seconds a line, or a CSV with the columns {TIME}[,{PROMPT},{OUTPUT}]"


@dataclass(frozen=True)
class Arrivals:
    """N requests: ascending ``times_s``, and prompt and output tokens of each, or None where not given."""

    times_s: tuple[float, ...]
    lengths: tuple[tuple[int, int], ...] | None

    @property
    def mean_lengths(self) -> tuple[int, int] | None:
        """Mean prompt and output tokens, at least 1 and 2; None where lengths are not given."""
        if self.lengths is None:
            return None
        prompt, output = (round(sum(each) / len(self.lengths)) for each in zip(*self.lengths, strict=True))
        return max(1, prompt), max(2, output)


def read_arrivals(path: Path) -> Arrivals:
    """The requests in the file at ``path``.

    Raises
    ------
    BadInputError
        When the file cannot be read, or names its first row that is no request.
    """
    rows = [
        (number, row)
        for number, row in enumerate(csv.reader(_text(path).splitlines()), 1)
        if any(cell.strip() for cell in row)
    ]
    header = [cell.strip().lower() for cell in rows[0][1]] if rows else []
    columns = {TIME: 0}
    if TIME in header:
        columns = {name: header.index(name) for name in (TIME, PROMPT, OUTPUT) if name in header}
        rows = rows[1:]
        if (PROMPT in columns) != (OUTPUT in columns):
            raise BadInputError(f"arrivals {path}: line 1 names one of {PROMPT} and {OUTPUT} alone", _CURE)
    if not rows:
        raise BadInputError(f"arrivals {path}: no request", _CURE)
    if len(rows) > MOST_ARRIVALS:
        raise BadInputError(
            f"arrivals {path}: {len(rows):,} requests",
            f"give at most {MOST_ARRIVALS:,}: the part of the day that matters",
        )
    times: list[float] = []
    lengths: list[tuple[int, int]] = []
    for number, row in rows:
        time = _number(path, number, row, columns, TIME)
        if times and time < times[-1]:
            raise BadInputError(
                f"arrivals {path}: line {number}: {time:g} s is before the {times[-1]:g} s above it",
                "sort the requests by arrival time",
            )
        times.append(time)
        if PROMPT in columns:
            lengths.append(
                (_tokens(path, number, row, columns, PROMPT), _tokens(path, number, row, columns, OUTPUT))
            )
    if lengths and max(output for _, output in lengths) < 2:
        raise BadInputError(f"arrivals {path}: no request has two output tokens: TPOT is not defined", _CURE)
    return Arrivals(tuple(times), tuple(lengths) or None)


def _text(path: Path) -> str:
    checked_input(path, what="arrivals file", cure=_CURE)
    if path.stat().st_size > _MOST_BYTES:
        raise BadInputError(f"arrivals {path}: larger than {_MOST_BYTES:,} bytes", _CURE)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise BadInputError(f"arrivals {path}: not UTF-8 text", _CURE) from None


def _number(path: Path, number: int, row: list[str], columns: dict[str, int], name: str) -> float:
    place = columns[name]
    text = row[place].strip() if place < len(row) else ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInputError(f"arrivals {path}: line {number}: {name} is {text!r:.40}, no number", _CURE)
    return value


def _tokens(path: Path, number: int, row: list[str], columns: dict[str, int], name: str) -> int:
    value = _number(path, number, row, columns, name)
    if value != int(value) or not 1 <= value <= MOST_TOKENS:
        raise BadInputError(
            f"arrivals {path}: line {number}: {name} is {value:g}", "give whole numbers of at least 1"
        )
    return int(value)
