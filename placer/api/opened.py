"""Inputs of a function: the path of a file, or what was read from it before."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from placer.errors import BadInputError

Source = str | os.PathLike[str]
"""The path of a file or folder."""
Kind = TypeVar("Kind")


def opened(given: Kind | Source, kinds: tuple[type[object], ...], read: Callable[[Path], Kind]) -> Kind:
    """``given`` where it is of one of ``kinds`` already, else what ``read`` finds at that path.

    Raises
    ------
    BadInputError
        When it is neither, or ``read`` refuses the file.
    """
    if isinstance(given, str | os.PathLike):
        return read(Path(given))
    if not isinstance(given, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise BadInputError(
            f"a {type(given).__name__} was given where a {names} is expected",
            f"give the path of its file, or a {names}",
        )
    return given


def paths_of(*given: object) -> list[Path]:
    """The paths among ``given``; what was read before has none."""
    return [Path(each) for each in given if isinstance(each, str | os.PathLike)]


def path_or_none(given: Source | None) -> Path | None:
    """``given`` as a path, or None."""
    return None if given is None else Path(given)
