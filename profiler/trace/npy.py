"""One ``.npy`` array, read without unpickling and without allocating what it only claims."""

import io
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError

THE_ARRAY = "the array"
"""What the array of a file that holds nothing else is called."""
_MOST_HEADER_BYTES = 10_000
"""As numpy's own limit, which it checks once it has read the header."""


def array_name(name: str) -> str:
    """How messages name an array: by the name that its archive gives it, which a file of one array does not."""
    return name if name == THE_ARRAY else f"array {name!r}"


def read_npy_header(
    stream: IO[bytes], kinds: str, name: str, where: str
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the array that starts at ``stream``, whose dtype kind must be one of ``kinds``.

    Raises
    ------
    BadInputError
        When the array is of another kind (pickled objects always are).
    ValueError
        When the header is damaged.
    """
    version = np.lib.format.read_magic(stream)
    first = version == (1, 0)
    size = stream.read(2 if first else 4)
    if int.from_bytes(size, "little") > _MOST_HEADER_BYTES:
        raise ValueError("its header is too long")
    header = io.BytesIO(size + stream.read(int.from_bytes(size, "little")))
    read_header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read_header(header)
    except Exception as error:  # numpy parses it as Python, whose tokenizer raises its own kinds
        raise ValueError(str(error).splitlines()[0] if str(error) else type(error).__name__) from None
    if dtype.hasobject or dtype.kind not in kinds:
        raise BadInputError(
            f"{where}: {array_name(name)} holds values of type {dtype}",
            "save ids and counts as integers, domains as text; pickled objects are never loaded",
        )
    # True and False pass for numbers in numpy's own check, not where it reads the array.
    if any(type(side) is not int for side in shape):
        raise ValueError("its shape is not of whole numbers")
    return shape, dtype


def check_npy_claim(
    shape: tuple[int, ...], dtype: np.dtype[Any], held_bytes: int, name: str, where: str
) -> int:
    """Bytes that the array claims, refused before it is allocated when ``held_bytes`` cannot hold it.

    Raises
    ------
    BadInputError
        When the claim is larger, or a side is negative.
    """
    claimed_bytes = dtype.itemsize
    for side in shape:
        claimed_bytes *= side
    # A side of 0 hides what the others claim.
    if min(shape, default=0) < 0 or max(claimed_bytes, *shape, 0) > held_bytes:
        raise BadInputError(
            f"{where}: {array_name(name)} claims {claimed_bytes} bytes in the shape {shape!s:.80}, the file holds "
            f"{held_bytes}",
            "the file is damaged: save it again",
        )
    return claimed_bytes


def read_npy(stream: IO[bytes], held_bytes: int, kinds: str, name: str, where: str) -> NDArray[Any]:
    """The array that ``stream``, of ``held_bytes`` in all, holds.

    Raises
    ------
    BadInputError
        When it is of another kind than ``kinds`` or claims more than the stream holds.
    ValueError, EOFError, OSError
        When it is damaged.
    """
    start = stream.tell()
    shape, dtype = read_npy_header(stream, kinds, name, where)
    check_npy_claim(shape, dtype, held_bytes, name, where)
    stream.seek(start)
    array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array
