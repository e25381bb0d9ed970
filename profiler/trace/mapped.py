"""Tensors of a safetensors file mapped into memory, so that a large trace is not held twice."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DTYPES = {"U8": "<u1", "U16": "<u2", "I16": "<i2", "I32": "<i4", "I64": "<i8", "F16": "<f2"}


def mapped_arrays(path: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """The tensors ``names`` of the file at ``path``, read-only; pages are read when they are used.

    The header must have been checked against the file, as `safetensors.safe_open` does. A file that is replaced
    (renamed over) while it is mapped keeps its old content here.
    """
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(header_bytes))
    raw = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    arrays = {}
    for name in names:
        entry = header[name]
        start, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        arrays[name] = raw[start:end].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays
