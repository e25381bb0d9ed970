"""Text from files and paths as a terminal may show it: whatever would move the cursor is spelled out."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from pydantic import BaseModel

Value = TypeVar("Value")


def visible(text: str, *, keep: str = "") -> str:
    r"""``text`` with every character that does not print written as its escape: ESC becomes ``\x1b``.

    Covers control and format characters (colours, line ends, right-to-left marks) and bytes of file names
    that are no UTF-8; those in ``keep`` stay.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in keep
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def short_name(name: str, most: int = 40) -> str:
    """``name``, as a file gives it, cut to ``most`` characters, the last of which then is an ellipsis."""
    return name if len(name) <= most else name[: most - 1] + "…"


def all_visible(value: Value) -> Value:
    """``value`` with every text in it made `visible`: in lists, mappings, dataclasses and documents."""
    changed: Any = value
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        changed = visible(value)
    elif isinstance(value, Mapping):
        changed = {all_visible(key): all_visible(inner) for key, inner in value.items()}
    elif isinstance(value, list):
        changed = [all_visible(inner) for inner in value]
    elif isinstance(value, tuple):
        changed = tuple(all_visible(inner) for inner in value)
    elif isinstance(value, BaseModel):
        changed = value.model_copy(update={name: all_visible(inner) for name, inner in value})
    elif is_dataclass(value) and not isinstance(value, type):
        changed = replace(
            value, **{field.name: all_visible(getattr(value, field.name)) for field in fields(value)}
        )
    result: Value = changed
    return result
