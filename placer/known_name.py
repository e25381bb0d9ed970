"""Names out of a list, and what to say of one that is not in it."""

from collections.abc import Sequence
from difflib import get_close_matches

from placer.errors import BadInputError

_NEAR = 0.6


def unknown_name(what: str, name: str, known: Sequence[str]) -> BadInputError:
    """The error for ``name``, which is none of ``known``: those that are alike first, then all of them."""
    near = get_close_matches(name.lower(), known, n=3, cutoff=_NEAR)
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    return BadInputError(f"unknown {what} {name!r:.60}", f"{guess}use one of: {', '.join(known)}")
