"""The schemas that follow from the types which read the files: `python -m placer.schemas.derived` writes them again."""

import json
from pathlib import Path
from typing import Any

from placer.placement import PlacementDocument
from placer.profiler.profile import PROFILE_TYPE
from placer.profiler.profile import SCHEMA as PROFILE_SCHEMA


def derived_schemas() -> dict[str, str]:
    """Text of ``placement.schema.json`` and ``profile.schema.json``, by name.

    A placement may hold fields of a later minor version, which readers keep. A profile holds none that it does
    not know.
    """
    return {
        "placement": _text(PlacementDocument.model_json_schema(by_alias=True)),
        "profile": _text({**_closed(PROFILE_TYPE.json_schema()), "title": PROFILE_SCHEMA}),
    }


def _text(schema: dict[str, Any]) -> str:
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps({**dialect, **schema}, indent=2, sort_keys=True) + "\n"


def _closed(schema: Any) -> Any:
    """``schema`` with every object that names its properties closed to others."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(value) for name, value in schema.items()}
    return {"additionalProperties": False, **closed} if isinstance(closed.get("properties"), dict) else closed


def _write(folder: Path) -> None:
    for name, text in derived_schemas().items():
        (folder / f"{name}.schema.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _write(Path(__file__).parent)
