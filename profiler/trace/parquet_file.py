"""Count traces from Parquet files, through pyarrow."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from placer.errors import BadInputError, MissingComponentError
from placer.profiler.trace.count_table import COLUMNS, count_table_trace
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.trace import CountTrace, Phase

_TEXTS = COLUMNS[3:]
_BATCH_ROWS = 65_536
_FREE_ROWS = 2**23
_MOST_ROWS_PER_BYTE = 25
"""Counts differ from row to row, so a row takes a bit at least; a file that claims more rows is a bomb."""
_MOST_METADATA = 10_000_000


def import_parquet(path: Path, model: KnownModel, phase: Phase | None = None) -> CountTrace:
    """Read a table (see `count_table_trace`) batch by batch.

    Raises
    ------
    BadInputError
        When the file is no such table, is damaged, or does not fit the model.
    MissingComponentError
        When pyarrow is not installed.
    """
    return count_table_trace(
        _chunks(path), model, phase, str(path), lambda row: f"{path}, row {row} (the first is 0)"
    )


def _chunks(path: Path) -> Iterator[pd.DataFrame]:
    try:
        from pyarrow import parquet  # noqa: PLC0415  (an optional component)
    except ImportError:
        raise MissingComponentError(
            f"{path}: reading Parquet needs pyarrow, which is not installed", "pip install pyarrow"
        ) from None
    try:
        limits = {
            "thrift_string_size_limit": _MOST_METADATA,
            "thrift_container_size_limit": _MOST_METADATA,
        }
        with parquet.ParquetFile(path, **limits) as file:
            rows, size = file.metadata.num_rows, path.stat().st_size
            names = {name: name.strip().lower() for name in file.schema_arrow.names}
            columns = len(file.schema_arrow.names)
        if rows > max(_FREE_ROWS, _MOST_ROWS_PER_BYTE * size):
            raise BadInputError(f"{path}: {rows} rows in {size} bytes", "write it as CSV if it is real")
        if len(set(names.values())) < columns:
            raise BadInputError(f"{path}: two columns of one name", "name every column once")
        read = [name for name, lower in names.items() if lower in COLUMNS]
        # A long text in every row is held once.
        texts = [name for name in read if names[name] in _TEXTS]
        with parquet.ParquetFile(path, read_dictionary=texts, **limits) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=read):
                yield batch.to_pandas().rename(columns=names)
    except (BadInputError, MemoryError):
        raise
    except Exception as error:
        if _is_torn(path):
            raise BadInputError(
                f"{path}: a Parquet file that is cut short", "copy or record it again"
            ) from None
        # The reader is foreign code and raises its own kinds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInputError(
            f"{path}: not a readable Parquet file ({reason})", f"write a flat table of {', '.join(COLUMNS)}"
        ) from None


def _is_torn(path: Path) -> bool:
    """Whether the end of the file, which repeats its first four bytes, is missing."""
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(max(0, path.stat().st_size - 4))
        return file.read(4) != start
