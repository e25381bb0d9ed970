"""The files that together make one trace."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from placer.errors import BadInputError
from placer.units import counted

_COMPANION = "gpu_expert_distribution_"
"""SGLang's recorder writes the applied placement beside its dumps under this name; it holds no routing."""


@dataclass(frozen=True)
class Shards:
    """Files to read, and what was left out of the folders that were given.

    Attributes
    ----------
    paths
        In the order given, a folder's files by name.
    sizes_bytes
        Of each.
    notes
        What was left out.
    """

    paths: tuple[Path, ...]
    sizes_bytes: tuple[int, ...]
    notes: tuple[str, ...]


def list_shards(sources: Sequence[Path]) -> Shards:
    """Every file of ``sources`` and, in whatever depth, of the folders among them; hidden files are left out.

    Raises
    ------
    BadInputError
        When a source does not exist, or there is no file at all.
    """
    found: dict[Path, None] = {}
    hidden = companions = 0
    try:
        for source in sources:
            if source.is_dir():
                for path in sorted(source.rglob("*")):
                    if any(part.startswith(".") for part in path.relative_to(source).parts):
                        hidden += path.is_file()
                    elif path.name.startswith(_COMPANION):
                        companions += 1
                    elif path.is_file():
                        found[path] = None
            elif source.is_file():
                found[source] = None
            else:
                raise BadInputError(f"{source}: no such file or folder", "check the path")
        paths = tuple(found)
        sizes_bytes = tuple(path.stat().st_size for path in paths)
    except OSError as error:
        raise BadInputError(
            f"{error.filename}: {error.strerror or error}", "check the path and its permissions"
        ) from None
    if not paths:
        raise BadInputError(
            f"{', '.join(map(str, sources)) or 'nothing'}: no file to import",
            "give files, or folders that hold some",
        )
    notes = []
    if hidden:
        notes.append(f"{hidden} hidden files were left out")
    if companions:
        notes.append(f"left out {counted(companions, 'file')} of applied placements ({_COMPANION}…)")
    return Shards(paths, sizes_bytes, tuple(notes))
