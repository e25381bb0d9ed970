"""Count traces from CSV files."""

import csv
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TextIO

import pandas as pd

from placer.errors import BadInputError
from placer.profiler.trace.count_table import COLUMNS, count_table_trace
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.trace import CountTrace, Phase

_CHUNK_ROWS = 500_000
_REPEATED = re.compile(r"\.\d+$")
_MOST_HEADER_CHARACTERS = 4096
_FIELDS = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")
_OPEN_QUOTE = re.compile(r"EOF inside string starting at row (\d+)")
"""What pandas says of a line; it counts lines from 1 in the first and from 0 in the second."""


def import_csv(path: Path, model: KnownModel, phase: Phase | None = None) -> CountTrace:
    """Read a table (see `count_table_trace`) whose first line names its columns; comma, tab or semicolon part them.

    Raises
    ------
    BadInputError
        When the file is no such table or does not fit the model.
    """
    return count_table_trace(_chunks(path), model, phase, str(path), partial(_place, path))


def _chunks(path: Path) -> Iterator[pd.DataFrame]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = pd.read_csv(
                file,
                sep=_separator(file, path),
                dtype=str,
                keep_default_na=False,
                skipinitialspace=True,
                chunksize=_CHUNK_ROWS,
            )
            for chunk in reader:
                # A first row longer than the header would turn its first fields into an index.
                if not isinstance(chunk.index, pd.RangeIndex):
                    raise BadInputError(
                        f"{_place(path, 0)}: it has more fields than the first line", "name every column"
                    )
                # pandas calls the second of two columns name.1.
                names = [_REPEATED.sub("", str(name).strip().lower()) for name in chunk]
                twice = [name for name in COLUMNS if names.count(name) > 1]
                if twice:
                    raise BadInputError(f"{path}: two columns {twice[0]}", "name every column once")
                chunk.columns = pd.Index(names)
                yield chunk[[name for name in COLUMNS if name in names]]
    except BadInputError:
        raise
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"{path}, line {_undecodable_line(path)}: not UTF-8 ({error.reason})", "write the table as UTF-8"
        ) from None
    except (OSError, ValueError, RecursionError, OverflowError) as error:  # parser errors are ValueErrors
        raise _unreadable(error, path) from None


def _unreadable(error: Exception, path: Path) -> BadInputError:
    """What the parser stopped at, with the line where it says one."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    if found := _FIELDS.search(reason):
        named, line, there = found.groups()
        return BadInputError(
            f"{path}, line {line}: not readable as CSV ({there} fields, the first line names {named})",
            "give every line the fields that the first one names, and put texts with a separator in quotes",
        )
    if found := _OPEN_QUOTE.search(reason):
        return BadInputError(
            f"{path}, line {int(found[1]) + 1}: not readable as CSV (a quote is opened and never closed)",
            "close it",
        )
    return BadInputError(
        f"{path}: not readable as CSV ({reason})",
        f"name its columns {', '.join(COLUMNS)} in the first line",
    )


def _separator(file: TextIO, path: Path) -> str:
    """What parts the columns, by the first line; ``file`` is left at its start."""
    header = file.readline(_MOST_HEADER_CHARACTERS)
    if len(header) == _MOST_HEADER_CHARACTERS and not header.endswith("\n"):
        raise BadInputError(
            f"{path}: its first line is longer than {_MOST_HEADER_CHARACTERS} characters",
            f"name its columns {', '.join(COLUMNS)} in the first line",
        )
    file.seek(0)
    return max(",\t;", key=header.count)


def _place(path: Path, row: int) -> str:
    """Where row ``row`` of the table begins, by reading it again: empty lines and line breaks in quotes move it."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=_separator(file, path), skipinitialspace=True)
            begins, seen = 1, -1
            for fields in reader:
                seen += any(fields) or len(fields) > 1
                if seen > row:
                    return f"{path}, line {begins}"
                begins = reader.line_num + 1
    except (csv.Error, OSError, ValueError):
        pass
    return f"{path}, row {row + 1} after the first line"


def _undecodable_line(path: Path) -> int:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1
