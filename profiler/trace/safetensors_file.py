"""Safetensors files whose bytes depend on their content alone, written without holding the tensors.

The safetensors package writes the metadata in an order that differs from run to run, and takes whole tensors.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_NAMES = {"int64": "I64", "int32": "I32", "uint16": "U16", "int16": "I16", "float16": "F16", "uint8": "U8"}


@dataclass(frozen=True)
class StreamedTensor:
    """A tensor that is written piece by piece.

    Attributes
    ----------
    dtype, shape
        Of the whole tensor.
    pieces
        Its bytes in row-major order.
    """

    dtype: np.dtype[Any]
    shape: Sequence[int]
    pieces: Iterable[bytes | memoryview]


def write_safetensors(path: Path, tensors: Mapping[str, StreamedTensor], metadata: Mapping[str, str]) -> None:
    """Write ``tensors`` and ``metadata`` in the safetensors format (huggingface/safetensors, README).

    Wider types come first, so that every tensor is aligned in the file.
    """
    ordered = sorted(tensors.items(), key=lambda one: (-one[1].dtype.itemsize, one[0]))
    entries: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, tensor in ordered:
        stop = offset + int(np.prod(tensor.shape, dtype=object)) * tensor.dtype.itemsize
        entries[name] = {
            "dtype": _NAMES[tensor.dtype.name],
            "shape": list(tensor.shape),
            "data_offsets": [offset, stop],
        }
        offset = stop
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in ordered:
            for piece in tensor.pieces:
                file.write(piece)
