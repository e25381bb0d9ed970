"""Arrays of an npz file, read without unpickling and without allocating what the file only claims."""

import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.npy import check_npy_claim, read_npy_header

_FREE_BYTES = 64 * 2**20
_MOST_INFLATION = 200
"""Routing data compresses less than 50-fold; a large array that claims more than this is a bomb."""


def read_arrays(path: Path, names: Iterable[str], texts: Iterable[str] = ()) -> dict[str, NDArray[Any]]:
    """Integer arrays ``names`` and text arrays ``texts`` of an npz file, those that it holds.

    Raises
    ------
    BadInputError
        When the file is damaged, an array is of another kind, or claims a size that the file cannot hold.
    """
    kinds = {**dict.fromkeys(names, "iu"), **dict.fromkeys(texts, "U")}
    try:
        with zipfile.ZipFile(path) as archive:
            members = {entry.filename: entry for entry in archive.infolist()}
            return {
                name: _read_array(archive, members[f"{name}.npy"], kind, path)
                for name, kind in kinds.items()
                if f"{name}.npy" in members
            }
    except BadInputError:
        raise
    except Exception as error:  # zip and npy readers raise a dozen kinds for a damaged file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInputError(
            f"{path}: not a readable npz file ({reason})", "save it with numpy.savez"
        ) from None


def array_names(path: Path) -> tuple[str, ...]:
    """The names of the arrays in an npz file that `read_arrays` could open, in order; the first ten."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy"))
    return (*names[:10], *(("…",) if len(names) > 10 else ()))


def _read_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, kind: str, path: Path) -> NDArray[Any]:
    name = entry.filename[:-4]
    with archive.open(entry) as stream:
        shape, dtype = read_npy_header(stream, kind, name, str(path))
    claimed_bytes = check_npy_claim(shape, dtype, entry.file_size, name, str(path))
    if claimed_bytes > max(_FREE_BYTES, _MOST_INFLATION * entry.compress_size):
        raise BadInputError(
            f"{path}: array {name!r} inflates {entry.compress_size} bytes to {claimed_bytes}",
            "save it uncompressed with numpy.savez if it is real",
        )
    with archive.open(entry) as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    if array.dtype.kind == "U" and array.nbytes:
        codes = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).reshape(-1).view(np.uint32)
        if codes.max() > sys.maxunicode:
            raise ValueError(f"array {name!r} holds what is no text")
    return array
