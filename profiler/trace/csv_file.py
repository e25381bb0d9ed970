"""Count traces from CSV files."""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from placer.errors import BadInputError
from placer.profiler.trace.count_table import COLUMNS, count_table_trace
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.trace import CountTrace, Phase

_CHUNK_ROWS = 500_000
_REPEATED = re.compile(r"\.\d+$")
_MOST_HEADER_CHARACTERS = 4096


def import_csv(path: Path, model: KnownModel, phase: Phase | None = None) -> CountTrace:
    """Read a table (see `count_table_trace`) whose first line names its columns; comma, tab or semicolon part them.

    Raises
    ------
    BadInputError
        When the file is no such table or does not fit the model.
    """
    return count_table_trace(_chunks(path), model, phase, str(path))


def _chunks(path: Path) -> Iterator[pd.DataFrame]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = file.readline(_MOST_HEADER_CHARACTERS)
            if len(header) == _MOST_HEADER_CHARACTERS and not header.endswith("\n"):
                raise BadInputError(
                    f"{path}: its first line is longer than {_MOST_HEADER_CHARACTERS} characters",
                    f"name its columns {', '.join(COLUMNS)} in the first line",
                )
            separator = max(",\t;", key=header.count)
            file.seek(0)
            reader = pd.read_csv(
                file,
                sep=separator,
                dtype=str,
                keep_default_na=False,
                skipinitialspace=True,
                chunksize=_CHUNK_ROWS,
            )
            for chunk in reader:
                # A first row longer than the header would turn its first fields into an index.
                if not isinstance(chunk.index, pd.RangeIndex):
                    raise BadInputError(
                        f"{path}: rows have more fields than the first line", "name every column"
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
    except (OSError, ValueError, RecursionError, OverflowError) as error:  # parser errors are ValueErrors
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInputError(
            f"{path}: not readable as CSV ({reason})",
            f"name its columns {', '.join(COLUMNS)} in the first line",
        ) from None
