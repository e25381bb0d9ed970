"""Changes to bytes that know nothing of a format: flips, extreme numbers, cuts, repeats and splices."""

import struct
from collections.abc import Callable, Sequence
from random import Random

MOST_BYTES = 1 << 16
"""Mutations stop growing here: what is slow because it is long has its own tests."""

_EXTREMES = (
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    256,
    32767,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53,
    2**63,
    2**64 - 1,
)
_WIDTHS = ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))

Mutation = Callable[[bytes, Random], bytes]
"""Changed bytes: the same ones for the same state of the random numbers."""


def mutated_bytes(data: bytes, random: Random) -> bytes:
    """``data`` after one change."""
    return random.choice(_CHANGES)(data, random)[:MOST_BYTES]


def spliced(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """The start of ``data`` with the end of another sample."""
    other = random.choice(others)
    return (data[: _place(data, random)] + other[_place(other, random) :])[:MOST_BYTES]


def _place(data: bytes, random: Random) -> int:
    return random.randint(0, len(data))


def _flip(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _random_byte(data: bytes, random: Random) -> bytes:
    at = _place(data, random)
    return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


def _extreme(data: bytes, random: Random) -> bytes:
    """An extreme number of 1, 2, 4 or 8 bytes at an aligned place, or at any."""
    width, code = random.choice(_WIDTHS)
    at = _place(data, random)
    at -= at % width if random.random() < 0.5 else 0
    number = random.choice(_EXTREMES) % 2 ** (8 * width)
    return data[:at] + struct.pack("<" + code, number) + data[at + width :]


def _nudge(data: bytes, random: Random) -> bytes:
    """A little-endian number changed by a little."""
    width, code = random.choice(_WIDTHS)
    if len(data) < width:
        return data
    at = random.randint(0, len(data) - width)
    (number,) = struct.unpack_from("<" + code, data, at)
    number = (number + random.choice((-8, -2, -1, 1, 2, 8))) % 2 ** (8 * width)
    return data[:at] + struct.pack("<" + code, number) + data[at + width :]


def _cut(data: bytes, random: Random) -> bytes:
    return data[: _place(data, random)]


def _without(data: bytes, random: Random) -> bytes:
    start, end = sorted((_place(data, random), _place(data, random)))
    return data[:start] + data[min(end, start + random.choice((1, 4, 64, len(data)))) :]


def _again(data: bytes, random: Random) -> bytes:
    start, end = sorted((_place(data, random), _place(data, random)))
    return data[:end] + data[start:end] + data[end:]


def _inserted(data: bytes, random: Random) -> bytes:
    at = _place(data, random)
    return data[:at] + random.randbytes(random.choice((1, 2, 8, 64))) + data[at:]


def _zeroed(data: bytes, random: Random) -> bytes:
    at, length = _place(data, random), random.choice((1, 4, 8, 64))
    return data[:at] + bytes(length) + data[at + length :]


_CHANGES: tuple[Mutation, ...] = (
    *(_flip, _flip, _random_byte, _extreme, _extreme, _nudge),
    *(_cut, _without, _again, _inserted, _zeroed),
)
