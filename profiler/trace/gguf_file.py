"""GGUF files, read through the ``gguf`` package, which is bounded here against damaged and hostile ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from placer.errors import BadInputError, MissingComponentError

_MOST_PARTS = 10_000_000
"""Pieces of metadata that are read; a vocabulary of a million words with its merges has about four million."""

Found = TypeVar("Found")


def read_gguf(path: Path, find: Callable[[Any], Found], *, cure: str, most_parts: int = _MOST_PARTS) -> Found:
    """What ``find`` takes from a reader of the file at ``path``.

    Raises
    ------
    BadInputError
        When the file is damaged, with ``cure`` for what to do; what ``find`` raises of this kind passes through.
    MissingComponentError
        When the gguf package is not installed.
    """
    try:
        from gguf import GGUFReader  # noqa: PLC0415  (an optional component)
    except ImportError:
        raise MissingComponentError(
            f"{path}: reading GGUF needs the gguf package, which is not installed", "pip install gguf"
        ) from None

    def get(self: Any, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
        """Read no further than the file goes: the package takes what is missing for empty and reads on."""
        self.parts_read += 1
        end = int(offset) + int(count) * np.dtype(dtype).itemsize
        if not 0 <= int(offset) <= end <= len(self.data) or self.parts_read > most_parts:
            raise ValueError("its metadata claims more than it holds")
        return GGUFReader._get(self, offset, dtype, count, override_order)

    # Made by hand, because whether the base class has types depends on what is installed.
    bounded = type("BoundedReader", (GGUFReader,), {"parts_read": 0, "_get": get})
    try:
        return find(bounded(path))
    except (BadInputError, MemoryError):
        raise
    except Exception as error:  # the reader is foreign code and raises many kinds for a damaged file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInputError(f"{path}: not a readable GGUF file ({reason})", cure) from None
