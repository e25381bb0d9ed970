"""The JSON Schemas that ship with placer, by name: one for each document, and for each file that it writes."""

import json
from importlib.resources import files
from typing import Any

_ENDING = ".schema.json"


def schema_names() -> tuple[str, ...]:
    """What `schema` takes: ``placement``, ``profile`` and ``trace`` for files, otherwise a command and its options."""
    names = (entry.name for entry in files("placer.schemas").iterdir())
    return tuple(sorted(name.removesuffix(_ENDING) for name in names if name.endswith(_ENDING)))


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) called ``name``: ``compare`` for what `placer compare --json` prints.

    Raises
    ------
    KeyError
        When there is no schema of that name.
    """
    if name not in schema_names():
        raise KeyError(name)
    text = files("placer.schemas").joinpath(f"{name}{_ENDING}").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
