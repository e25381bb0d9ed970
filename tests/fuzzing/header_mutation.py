"""Changes to files with a header of lengths, types and shapes: safetensors and .npy."""

import ast
import struct
from random import Random
from typing import Any

from fuzzing.byte_mutation import mutated_bytes
from fuzzing.json_mutation import mutated_json

_DTYPES = (
    *(
        "<i8",
        "<i4",
        "<u2",
        "|u1",
        "|i1",
        ">i8",
        "<f8",
        "<f2",
        "|b1",
        "|O",
        "<U3",
        "|S4",
        "<M8[s]",
        "<c16",
        "|V8",
        "<i3",
    ),
    *("<U250000000", "", "O", "(2,)<i4", "<i8,<i8"),
)
_SIDES = (0, 1, 2, 3, 4, 7, -1, 255, 65536, 2**31, 2**62, 2**63, 2**64, True, 1.0, None)


def mutated_safetensors(data: bytes, random: Random) -> bytes:
    """``data`` with a change to its header, whose length then mostly fits, to the length alone, or to any byte."""
    kind = random.randrange(8)
    length = int.from_bytes(data[:8], "little")
    if kind == 0 or len(data) < 10 or length > len(data) - 8:
        return mutated_bytes(data, random)
    header, rest = data[8 : 8 + length], data[8 + length :]
    if kind == 1:
        length = random.choice(
            (length + 1, length - 1, length + 8, 0, 1, 2, 2**32, 2**63, 2**64 - 1, len(data))
        )
        return struct.pack("<Q", length % 2**64) + header + rest
    if kind == 2:
        return data[: 8 + length] + mutated_bytes(rest, random)
    header = mutated_json(header, random)
    if random.random() < 0.5:
        header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + rest


def mutated_npy(data: bytes, random: Random) -> bytes:
    """``data`` with another shape, type, order, version or header length, or with any byte changed."""
    kind = random.randrange(6)
    if kind == 0 or len(data) < 12 or not data.startswith(b"\x93NUMPY\x01"):
        return mutated_bytes(data, random)
    length = int.from_bytes(data[8:10], "little")
    text, payload = data[10 : 10 + length], data[10 + length :]
    if kind == 1:
        return data[: 10 + length] + mutated_bytes(payload, random)
    try:
        header = ast.literal_eval(text.decode("latin1"))
        shape: list[Any] = list(header["shape"])
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
        return mutated_bytes(data, random)
    if kind == 2:
        header["descr"] = random.choice((*_DTYPES, [("a", "<i4")], 5, None))
    elif kind == 3 and shape:
        shape[random.randrange(len(shape))] = random.choice(_SIDES)
        header["shape"] = tuple(shape)
    elif kind == 3:
        header["shape"] = random.choice(((1,), (0, 0), 5))
    elif kind == 4:
        random.shuffle(shape)
        added = random.choice(((), (1,), (2,) * 40))
        header |= {
            "shape": (*shape[random.randint(0, 1) :], *added),
            "fortran_order": random.choice((True, False, 0, "a")),
        }
    else:
        return b"\x93NUMPY" + mutated_bytes(data[6:10], random)[:4] + mutated_bytes(text, random) + payload
    written = repr(header).encode("latin1", "replace")
    written += b" " * (-(len(written) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(written) % 2**16) + written + payload
