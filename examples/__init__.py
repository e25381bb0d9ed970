"""Bundled examples: model shapes that the demo and the tests use, and a small trained model with its trace."""

from importlib.resources import files
from pathlib import Path

from placer.errors import BadInputError


def example_folder(name: str) -> Path:
    """Folder of the bundled example ``name``: "qwen3-30b-a3b" (shapes) or "tiny-moe" (weights and a trace).

    Raises
    ------
    BadInputError
        When there is no such example, or the package lies in an archive, where it has no folder.
    """
    folder = Path(str(files(__package__) / name))
    if not folder.is_dir():
        known = ", ".join(
            sorted(one.name for one in files(__package__).iterdir() if one.is_dir() and "-" in one.name)
        )
        raise BadInputError(f"there is no example {name!r}", f"use one of: {known}")
    return folder
