"""What the parser of the command line refuses, in the words of every other error."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from placer.errors import BadInputError

_NO_UNIT = re.compile(r"[-+]?[\d.,]+")
_NUMBER = re.compile(r"Input should be a valid (number|integer)")


def usage_error(error: Any, arguments: Sequence[str]) -> BadInputError:
    """The parser's ``error`` about ``arguments``."""
    context = getattr(error, "ctx", None)
    what, see = error.format_message(), f"see '{context.command_path if context else 'placer'} --help'"
    option = getattr(error, "param", None)
    kind = _NUMBER.search(what)
    if kind is None or option is None:
        return BadInputError(what, see)
    value = _given(option.opts, arguments)
    said = "a number" if kind.group(1) == "number" else "a whole number"
    is_what = (
        f"{option.opts[0]} is not {said}"
        if value is None
        else f"{option.opts[0]} {value!r:.60} is not {said}"
    )
    # What it is, without what else its help tells.
    meaning = re.split(r"[.:] ", getattr(option, "help", None) or "")[0].rstrip(".")
    # A unit is letters; a fraction where a whole number is asked for has none.
    alone = "" if value is not None and _NO_UNIT.fullmatch(value) else " without a unit"
    return BadInputError(is_what, f"give {said}{alone} ({meaning})" if meaning else see)


def _given(flags: Sequence[str], arguments: Sequence[str]) -> str | None:
    """The value that an option was given, as far as it can be found."""
    apart = [after for before, after in pairwise(arguments) if before in flags]
    joined = [each.partition("=")[2] for each in arguments if each.partition("=")[0] in flags and "=" in each]
    found = apart + joined
    return found[-1] if found else None
