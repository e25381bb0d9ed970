"""Inputs of a function: the path of a file, or what was read from it before."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Source = str | os.PathLike[str]
"""The path of a file or folder."""
Kind = TypeVar("Kind")


def opened(given: Kind | Source, read: Callable[[Path], Kind]) -> Kind:
    """``given`` where it was read before, else what ``read`` finds at that path."""
    return read(Path(given)) if isinstance(given, str | os.PathLike) else given


def paths_of(*given: object) -> list[Path]:
    """The paths among ``given``; what was read before has none."""
    return [Path(each) for each in given if isinstance(each, str | os.PathLike)]


def path_or_none(given: Source | None) -> Path | None:
    """``given`` as a path, or None."""
    return None if given is None else Path(given)


def path_as_text(given: Source | None) -> str | None:
    """``given`` as it was written, for a path on another machine, or None."""
    return None if given is None else os.fspath(given)
