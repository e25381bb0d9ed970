"""Changes to JSON text: other types, extreme numbers, missing, repeated and foreign keys, deep nesting."""

import json
from random import Random
from typing import Any

from fuzzing.byte_mutation import mutated_bytes

_SCALARS: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        3,
        7,
        255,
        65535,
        65536,
        2**31,
        -(2**31),
        2**53 + 1,
        2**63,
        2**64,
        10**30,
    ),
    *(0.0, -0.0, 0.5, -0.5, 1e-300, 1e300, 1e9, 5e-324, float("nan"), float("inf"), float("-inf")),
    *(
        "",
        "0",
        "-1",
        "1e9",
        "nan",
        "true",
        "\ud800",
        "\x00",
        "\x1b[2J",
        "é",
        "\u202e",
        "a" * 600,
        "../../etc/passwd",
    ),
    *([], {}, [[]], [None], {"": {}}, [0, 1], [-1], {"0": [0]}),
)
_KEYS = ("", "schema", "0", "-1", "1e3", "01", "999999999999", "\ud800", "__class__", "a" * 300)
_DEPTHS = (3, 70, 900, 3000)
_DEEP = "@deep@"


def mutated_json(data: bytes, random: Random) -> bytes:
    """JSON text ``data`` after one change to a value in it; changed as bytes where it is no JSON."""
    if random.random() < 0.15:
        return mutated_bytes(data, random)
    try:
        return _spelled(_changed(json.loads(data), random), random)
    except (ValueError, RecursionError):
        return mutated_bytes(data, random)


def _changed(document: Any, random: Random) -> Any:
    """``document`` with one value in it replaced, removed, repeated or moved, in place."""
    place = _place(document, random)
    if place is None:
        return random.choice(_SCALARS)
    holder, key = place
    kind = random.randrange(10)
    value = holder[key]
    if kind == 0:
        del holder[key]
    elif kind == 1:
        other, at = _place(document, random) or place
        holder[key] = json.loads(json.dumps(other[at]))
    elif kind == 2:
        holder[key] = random.choice(([value], {"a": value}, str(value), _DEEP))
    elif kind == 3 and isinstance(holder, dict):
        holder[random.choice((*_KEYS, f"{key}2", str(key).upper()))] = holder.pop(key)
    elif kind == 3:
        holder.insert(random.randint(0, len(holder)), value)
    elif kind <= 6 and isinstance(value, int | float) and not isinstance(value, bool):
        holder[key] = _near(value, random)
    elif kind == 5 and isinstance(value, list) and value:
        holder[key] = random.choice((value[1:], value[:-1], value[::-1], value + value, [value[0]] * 70))
    elif kind == 5 and isinstance(value, str):
        holder[key] = random.choice(
            (value + "x", value[:-1], value.upper(), value * 40, value[::-1], " " + value)
        )
    else:
        holder[key] = random.choice(_SCALARS)
    return document


def _spelled(document: Any, random: Random) -> bytes:
    """``document`` as JSON text, now and then with a key twice, a byte order mark, or its escapes written out."""
    text = json.dumps(document, ensure_ascii=random.random() < 0.8)
    if _DEEP in text:
        depth = random.choice(_DEPTHS)
        text = text.replace(
            f'"{_DEEP}"', random.choice(("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth))
        )
    kind = random.randrange(40)
    if kind == 0 and text.startswith("{") and len(text) > 2:
        start = text.find('"', random.randrange(len(text)))
        end = text.find(",", start)
        text = (
            text[:end] + "," + text[start:end] + text[end:]
            if 0 < start < end
            else "{" + text[1:-1] + "," + text[1:]
        )
    elif kind == 1:
        text = "\ufeff" + text
    elif kind == 2:
        text = text.replace(", ", random.choice((",\n", ",\r\n", ",\u2028", ",,")), 3)
    return text.encode("utf-8", "surrogatepass" if random.random() < 0.1 else "replace")


def _near(value: float, random: Random) -> Any:
    around = (value + 1, value - 1, -value, value * 2, value / 2, value * 1e6, value + 0.5, str(value))
    try:
        return random.choice((*around, int(value) if abs(value) < 1e18 else 0))
    except OverflowError:
        return 0


def _place(document: Any, random: Random) -> tuple[Any, Any] | None:
    """A holder in ``document`` and a key or index of it, on a random way down; None where there is none."""
    place, value = None, document
    while isinstance(value, dict | list) and value and (place is None or random.random() < 0.85):
        key = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
        place, value = (value, key), value[key]
    return place
