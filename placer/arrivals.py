"""Arrival times from a file: one per line, or a CSV that may give each request's lengths too."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from placer.errors import BadInputError
from placer.input import checked_input
from placer.workload import MOST_ARRIVALS, MOST_SPAN_S

TIME, PROMPT, OUTPUT = "arrival_s", "prompt_tokens", "output_tokens"
_NAMES = (TIME, PROMPT, OUTPUT)
MOST_TOKENS = 10_000_000
_LATEST_S = 1e11
"""No time is as late: in seconds it is of the year 5138, and times since 1973 in milliseconds are above it."""
_MOST_BYTES = 16 * 2**20
_CURE = f"give one time in seconds a line, or a CSV with the columns {TIME}[,{PROMPT},{OUTPUT}]"
_UNIT_QUESTION = (
    "give seconds: are these milliseconds (divide by 1,000), microseconds (by 10^6) or nanoseconds (by 10^9)?"
)


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
    rows = _rows(path)
    columns: dict[str, int] = {}
    if rows:
        header = _columns(path, *rows[0])
        columns = header or _by_position(path, *rows[0])
        rows = rows[1:] if header else rows
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
        _check_width(path, number, row, columns)
        time = _time(path, number, row, columns)
        if times and time < times[-1]:
            raise BadInputError(
                f"arrivals {path}: line {number}: {time:g} s is before the {times[-1]:g} s above it",
                "sort the requests by arrival time",
            )
        if times and time - times[0] > MOST_SPAN_S:
            raise BadInputError(
                f"arrivals {path}: line {number}: the requests span {time - times[0]:,.10g} s, more than "
                f"{MOST_SPAN_S // 86_400} days",
                f"{_UNIT_QUESTION}; or give the part of the day that matters",
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


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Line number and values of each line that is not empty; empty values at its end are none."""
    found: list[tuple[int, list[str]]] = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        try:
            row = [cell.strip() for cell in next(csv.reader([line]), [])]
        except csv.Error as error:
            raise BadInputError(f"arrivals {path}: line {number}: {error}", _CURE) from None
        while row and not row[-1]:
            row.pop()
        if row:
            found.append((number, row))
    return found


def _columns(path: Path, number: int, row: list[str]) -> dict[str, int] | None:
    """Where a header line puts each column; None where ``row`` is no header."""
    header = [cell.lower() for cell in row]
    if TIME not in header:
        return None
    # A column that is not known may hold the very lengths that the plan should be made for.
    for place, name in enumerate(header):
        if name not in _NAMES:
            raise BadInputError(
                f"arrivals {path}: line {number}: column {row[place]!r:.40} is not known",
                f"name the columns {TIME}[,{PROMPT},{OUTPUT}] and leave others out",
            )
        if name in header[:place]:
            raise BadInputError(f"arrivals {path}: line {number} names {name} twice", _CURE)
    if (PROMPT in header) != (OUTPUT in header):
        raise BadInputError(f"arrivals {path}: line {number} names one of {PROMPT} and {OUTPUT} alone", _CURE)
    return {name: header.index(name) for name in header}


def _by_position(path: Path, number: int, row: list[str]) -> dict[str, int]:
    """Columns of a file without a header, told by how many its first line has."""
    if len(row) not in (1, len(_NAMES)):
        raise BadInputError(
            f"arrivals {path}: line {number} has {len(row)} values ({', '.join(row)!r:.60})",
            f"without a header give 1 value a line ({TIME}) or 3 ({TIME},{PROMPT},{OUTPUT})",
        )
    return {name: place for place, name in enumerate(_NAMES[: len(row)])}


def _check_width(path: Path, number: int, row: list[str], columns: dict[str, int]) -> None:
    if len(row) > len(columns):
        raise BadInputError(
            f"arrivals {path}: line {number}: {row[len(columns)]!r:.40} is in no column ({', '.join(columns)})",
            f"give every line {len(columns)} value{'' if len(columns) == 1 else 's'}",
        )


def _time(path: Path, number: int, row: list[str], columns: dict[str, int]) -> float:
    value = _number(path, number, row, columns, TIME)
    if abs(value) >= _LATEST_S:
        raise BadInputError(
            f"arrivals {path}: line {number}: {TIME} is {row[columns[TIME]]!r:.40}, in seconds a time beyond the year "
            "5000",
            _UNIT_QUESTION,
        )
    return value


def _number(path: Path, number: int, row: list[str], columns: dict[str, int], name: str) -> float:
    place = columns[name]
    text = row[place] if place < len(row) else ""
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
