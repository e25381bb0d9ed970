"""Sizes as people write them (72GiB, 80GB, 75%), and figures of every kind as they read them."""

import math
import re

from placer.errors import BadInputError

GIB = 2**30
MIB = 2**20
TIB = 2**40

_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": MIB,
    "GIB": GIB,
    "TIB": TIB,
}
_MOST_DIGITS = 17
"""Significant digits that tell any two numbers apart."""
_NUMBER = re.compile(r"^\s*([0-9]{1,12}(?:\.[0-9]{1,12})?|\.[0-9]{1,12})\s*$")
_SIZE = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]+|%)\s*$")


def operations(per_s: float) -> str:
    """Operations per second in the largest unit up to Gop/s that leaves a digit before the point: ``724 Mop/s``."""
    for scale, unit in ((1e9, "Gop/s"), (1e6, "Mop/s"), (1e3, "kop/s")):
        if per_s >= scale:
            return f"{per_s / scale:,.{0 if per_s >= 10 * scale else 1}f} {unit}"
    return f"{per_s:.0f} op/s"


def parse_size(
    text: str, *, whole_bytes: int | None = None, whole_name: str | None = None, name: str = "size"
) -> int:
    """Bytes that ``text`` means: ``72GiB`` (2^30), ``80GB`` (10^9), ``75%`` of ``whole_bytes``.

    ``whole_name`` says what a share would be of where that is not known; None where a share has no meaning.

    Raises
    ------
    BadInputError
        When the text is not a positive size with a unit, or a percentage has nothing to refer to.
    """
    takes_share = whole_bytes is not None or whole_name is not None
    share = " or 75%" if takes_share else ""
    if (written := _NUMBER.match(text) or _SIZE.match(text)) is not None and not float(written.group(1)):
        sizes = "72GiB, 80GB or 75%" if takes_share else "72GiB or 80GB"
        raise BadInputError(f"{name} {text!r:.80} is zero", f"write a size above that, such as {sizes}")
    match = _SIZE.match(text)
    if match is None and (bare := _NUMBER.match(text)) is not None:
        number = bare.group(1)
        or_share = f" or {float(number):.0%}" if takes_share and float(number) <= 1 else ""
        raise BadInputError(
            f"{name} {text!r:.80} has no unit", f"write {number}GiB (2^30) or {number}GB (10^9){or_share}"
        )
    if match is None:
        raise BadInputError(
            f"{name} {text!r:.80} is not a positive size with a unit",
            f"write it as 72GiB (2^30), 80GB (10^9){share}",
        )
    number, unit = float(match.group(1)), match.group(2).upper()
    if unit == "%":
        if not takes_share:
            raise BadInputError(f"{name} {text!r:.80} takes no percentage", "write the size as 72GiB or 80GB")
        if whole_bytes is None:
            raise BadInputError(
                f"{name} {text!r:.80}: {whole_name} is not known here, so a share of it is not either",
                "write the size in GiB, or name the GPU with --gpu NAME",
            )
        if number > 100:
            raise BadInputError(f"{name} {text!r:.80} is more than the whole", "write at most 100%")
        size = number / 100 * whole_bytes
    elif unit in _UNITS:
        size = number * _UNITS[unit]
    else:
        raise BadInputError(
            f"{name} {text!r:.80} has an unknown unit {match.group(2)!r:.40}",
            _known_unit(match.group(1), unit) + share,
        )
    if not math.isfinite(size) or size < 1 or size > 2**60:
        raise BadInputError(f"{name} {text!r:.80} is not a usable size", f"write it as 72GiB, 80GB{share}")
    return int(size)


def _known_unit(number: str, unit: str) -> str:
    """How to write a size whose ``unit`` (upper case) is none: in its own magnitude where the letter tells that."""
    letters = "KMGT"
    power = letters.find(unit[0]) + 1
    if not power:
        return "write it in KiB, MiB, GiB or TiB, such as 72GiB (2^30)"
    letter = letters[power - 1]
    return f"write {number}{letter}iB (2^{10 * power}) or {number}{letter}B (10^{3 * power})"


def gib(count_bytes: float) -> str:
    """``count_bytes`` as a person reads it, in GiB (MiB below 0.1 GiB, bytes below 0.1 MiB)."""
    if abs(count_bytes) < 0.1 * MIB:
        return f"{count_bytes:z,.0f} B"
    if abs(count_bytes) < 0.1 * GIB:
        return f"{count_bytes / MIB:,.1f} MiB"
    return f"{count_bytes / GIB:,.2f} GiB"


def enough_gib(needed_bytes: int) -> float:
    """GiB that hold ``needed_bytes``, rounded up to hundredths."""
    return math.ceil(needed_bytes / GIB * 100) / 100


def figure(value: float, decimals: int) -> str:
    """``value`` with so many decimals, or two digits where those would show a number as zero; never -0."""
    if value and abs(value) < 0.5 * 10**-decimals:
        return rounded(value, 2)
    return f"{value:z,.{decimals}f}"


def rounded(value: float, digits: int) -> str:
    """``value`` to so many significant digits, whole numbers to the last one; never with an exponent."""
    if not math.isfinite(value) or not value:
        return f"{value:z.0f}"
    kept = float(f"{value:.{digits - 1}e}")
    decimals = digits - 1 - math.floor(math.log10(abs(kept)))
    return f"{kept if decimals > 0 else value:,.{min(max(decimals, 0), 9)}f}"


def rounded_up(value: float) -> str:
    """Three digits that are not below ``value``, above 0, as a flag takes them."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / scale) * scale:.12g}"


def rounded_down(value: float, digits: int = 3) -> float:
    """So many digits that are not above ``value``, above 0."""
    scale = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.floor(value / scale * (1 + 1e-12)) * scale:.12g}")


def duration(us: float, digits: int = 4) -> str:
    """A time given in microseconds as a person reads it: 13.60 µs, 24.35 ms, 2.104 s."""
    kept = abs(float(f"{us:.{digits - 1}e}"))
    unit, size = next((each for each in (("µs", 1.0), ("ms", 1e3)) if kept < 1e3 * each[1]), ("s", 1e6))
    return f"{rounded(us / size, digits)} {unit}"


def telling_digits(value: float, limit: float, digits: int) -> int:
    """At least so many significant digits: as many as show on which side of ``limit`` a ``value`` lies.

    A value beyond the limit is shown beyond it, and beyond the limit in as many digits; any other one is not.
    """
    for more in range(digits, _MOST_DIGITS):
        shown, rounded_limit = (float(f"{each:.{more - 1}e}") for each in (value, limit))
        if shown > max(limit, rounded_limit) if value > limit else shown <= limit:
            return more
    return _MOST_DIGITS


def excess_percent(value: float, limit: float) -> str:
    """By how much ``value`` is beyond ``limit``, above 0: +112.6%, +0.004% for what would be shown as none."""
    share = value / limit - 1
    return f"+{rounded(100 * share, 1)}%" if 0 < share < 0.0005 else f"{share:+,.1%}"


def duration_range(low_us: float, high_us: float, digits: int = 3) -> str:
    """From one time to another, the unit said once where they share it: 21.2 to 49.3 ms."""
    low, high = duration(low_us, digits), duration(high_us, digits)
    value, unit = low.split()
    return f"{value if high.endswith(' ' + unit) else low} to {high}"


def counted(count: int, noun: str) -> str:
    """``count`` with its ``noun``, which takes an s unless there is one of it: 1 thread, 1,200 threads."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """A share as a person reads it: 84.2%, 0.0% for none, <0.1% for what would be shown as none."""
    return "<0.1%" if 0 < share < 0.0005 else f"{share:z.1%}"


def gap_percent(gap: float) -> str:
    """A solver's gap: 0.18%, 0.00% where it is closed, <0.01% for what would be shown as closed."""
    return "<0.01%" if 0 < gap < 0.00005 else f"{gap:z.2%}"


def signed_percent(share: float) -> str:
    """A difference as a person reads it: +3.1%, -0.2%, 0.0% for anything smaller, +8,414% for ten times and more."""
    shown = f"{share:+z,.1%}" if abs(share) < 9.9995 else f"{share:+,.0%}"
    return "0.0%" if shown == "+0.0%" else shown
