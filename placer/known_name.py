"""Names out of a list, and what to say of one that is not in it."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from placer.errors import BadInputError

_NEAR = 0.6
_MODEL_NUMBER = re.compile(r"\b[a-z]?\d{2,}[a-z]?\b")
_SHORT_LIST = 12
"""Names that are all given; of more, those that are alike, where there are any."""


def unknown_name(what: str, name: str, known: Sequence[str]) -> BadInputError:
    """The error for ``name``, which is none of ``known``: those that are alike, and all where they are few."""
    return BadInputError(f"unknown {what} {name!r:.60}", _advice(name, known))


def unknown_value(subject: str, name: str, known: Iterable[str]) -> BadInputError:
    """As `unknown_name`, for a ``subject`` that takes names, such as an option."""
    return BadInputError(f"{subject} {name!r:.60} is not known", _advice(name, tuple(known)))


def _advice(name: str, known: Sequence[str]) -> str:
    bare = _bare(name)
    near = [each for each in known if bare and _bare(each).startswith(bare)]
    near = near or [each for each in known if _numbers(name) & _numbers(each)]
    near = near or get_close_matches(name.lower(), known, n=3, cutoff=_NEAR)
    if not near:
        return f"use one of: {', '.join(known)}"
    guess = f"did you mean {' or '.join(near[:3])}?"
    return guess if len(known) > _SHORT_LIST else f"{guess} use one of: {', '.join(known)}"


def _numbers(name: str) -> set[str]:
    """Model numbers in ``name``, such as 8480, 9654 or h100: what a device's full name shares with its short one."""
    found = _MODEL_NUMBER.findall(name.lower())
    return {*found, *(number[:-1] for number in found if number[-1].isalpha())}


def _bare(name: str) -> str:
    """Letters and digits, which is what people remember of a name."""
    return "".join(character for character in name.lower() if character.isalnum())
