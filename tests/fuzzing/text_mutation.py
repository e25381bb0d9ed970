"""Changes to lines of text: lines and cells removed, repeated and moved, numbers made extreme."""

import re
from random import Random

from fuzzing.byte_mutation import mutated_bytes
from fuzzing.json_mutation import mutated_json

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_WRITTEN = (
    *(
        b"0",
        b"-1",
        b"1e400",
        b"nan",
        b"inf",
        b"-inf",
        b"1e308",
        b"0x10",
        b"1_000",
        b"",
        b" ",
        b"99999999999999999999",
    ),
    *(b"4294967296", b"2147483648", b"1.5", b"-0.0", b"\xd9\xa3", b"1e-320", b'"', b"00012", b"9" * 5000),
)
_SEPARATORS = (
    b",",
    b";",
    b"\t",
    b" ",
    b"\n",
    b"\r",
    b"\r\n",
    b"\x00",
    b'"',
    b"\x0b",
    b"\xe2\x80\xa8",
    b"\x1b[31m",
    b"\xff",
)


def mutated_text(data: bytes, random: Random) -> bytes:
    """``data`` after one change to a line, a number or a separator in it."""
    kind = random.randrange(8)
    lines = data.split(b"\n")
    if kind == 0:
        return mutated_bytes(data, random)
    if kind <= 2 and len(lines) > 1:
        return b"\n".join(_moved(lines, random))
    if kind <= 5 and (numbers := list(_NUMBER.finditer(data))):
        found = random.choice(numbers)
        return data[: found.start()] + random.choice(_WRITTEN) + data[found.end() :]
    separator = random.choice(_SEPARATORS)
    if kind == 6 and separator in data:
        return data.replace(separator, random.choice(_SEPARATORS), random.choice((1, 2, -1)))
    at = random.randint(0, len(data))
    return data[:at] + separator + data[at:]


def mutated_json_lines(data: bytes, random: Random) -> bytes:
    """JSON, one document or one on every line, after one change to a document or to the lines."""
    lines = data.split(b"\n")
    if len(lines) == 1:
        return mutated_json(data, random)
    if random.random() < 0.15:
        return mutated_text(data, random)
    at = random.randrange(len(lines))
    return b"\n".join([*lines[:at], mutated_json(lines[at], random), *lines[at + 1 :]])


def _moved(lines: list[bytes], random: Random) -> list[bytes]:
    at, to = random.randrange(len(lines)), random.randrange(len(lines))
    kind = random.randrange(4)
    if kind == 0:
        return lines[:at] + lines[at + 1 :]
    if kind == 1:
        return lines[:to] + [lines[at]] * random.choice((1, 2, 40)) + lines[to:]
    if kind == 2:
        lines[at], lines[to] = lines[to], lines[at]
        return lines
    lines[at] = lines[at][: random.randint(0, len(lines[at]))] + lines[to]
    return lines
