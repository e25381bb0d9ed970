"""Sizes as people write them (72GiB, 80GB, 75%) and as they read them."""

import math
import re

from placer.errors import BadInputError

GIB = 2**30
MIB = 2**20

_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_SIZE = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]+|%)\s*$")


def parse_size(text: str, *, whole_bytes: int | None = None, name: str = "size") -> int:
    """Bytes that ``text`` means: ``72GiB`` (2^30), ``80GB`` (10^9), ``75%`` of ``whole_bytes``.

    Raises
    ------
    BadInputError
        When the text is not a positive size with a unit, or a percentage has nothing to refer to.
    """
    match = _SIZE.match(text)
    if match is None:
        raise BadInputError(
            f"{name} {text!r} is not a positive size with a unit",
            "write it as 72GiB (2^30), 80GB (10^9) or 75%",
        )
    number, unit = float(match.group(1)), match.group(2).upper()
    if unit == "%":
        if whole_bytes is None:
            raise BadInputError(
                f"{name} {text!r}: the GPU's memory is not known here, so a share of it is not either",
                "write the size in GiB, or name the GPU when profiling (--gpu NAME)",
            )
        if number > 100:
            raise BadInputError(f"{name} {text!r} is more than the whole GPU", "write at most 100%")
        size = number / 100 * whole_bytes
    elif unit in _UNITS:
        size = number * _UNITS[unit]
    else:
        raise BadInputError(
            f"{name} {text!r} has an unknown unit {match.group(2)!r}", "use MiB, GiB, MB, GB or %"
        )
    if not math.isfinite(size) or size < 1 or size > 2**60:
        raise BadInputError(f"{name} {text!r} is not a usable size", "write it as 72GiB, 80GB or 75%")
    return int(size)


def gib(count_bytes: float) -> str:
    """``count_bytes`` as a person reads it, in GiB (MiB below 0.1 GiB)."""
    if abs(count_bytes) < 0.1 * GIB:
        return f"{count_bytes / MIB:,.1f} MiB"
    return f"{count_bytes / GIB:,.2f} GiB"
