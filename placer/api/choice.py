"""Values that are one of a few names."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from placer.known_name import unknown_value

Chosen = TypeVar("Chosen")


def choice(text: str, choices: Mapping[str, Chosen], flag: str) -> Chosen:
    """What ``text`` stands for among ``choices``.

    Raises
    ------
    BadInputError
        When it is none of them.
    """
    if text not in choices:
        raise unknown_value(flag, text, choices)
    return choices[text]


def kv_dtype(text: str) -> str:
    """How keys and values are held: "bf16" or "fp8"."""
    return choice(text, {name: name for name in ("bf16", "fp8")}, "--kv-dtype")


def prefill_side(text: str) -> str:
    """Whether decode tokens stand in for missing prompts: "decode" or "none"."""
    return choice(text, {name: name for name in ("decode", "none")}, "--prefill-from")


def names(given: str | Sequence[str]) -> tuple[str, ...]:
    """``given``, or its parts where it is one text with commas between names."""
    return tuple(name for name in given.split(",") if name) if isinstance(given, str) else tuple(given)
