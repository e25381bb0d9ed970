"""Which files of a folder placer wrote itself: a list beside them, so that nobody else's is overwritten."""

import hashlib
import json
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from placer.errors import BadInputError
from placer.output import write_text

LIST = ".placer-files.json"
"""The list: SHA-256 of each file by its name, the newest first."""
_SCHEMA = "placer.written-files/1"
_KEPT = 2
"""Hashes of a name: a file that is being replaced has its old content or its new one."""


def check_replaceable(
    folder: Path, names: Iterable[str], flag: str = "-o", new: Mapping[str, bytes] | None = None
) -> None:
    """Raise BadInputError where ``folder`` has a file of ``names`` that is not as placer wrote it there.

    A file that holds what ``new`` would put in its place may be replaced too. ``flag`` is the option that named the
    folder, for the message.
    """
    written = _read(folder)
    foreign = [name for name in names if not _replaceable(folder / name, written.get(name, ()), new or {})]
    if foreign:
        more = f" (also: {', '.join(foreign[1:])})" if foreign[1:] else ""
        raise BadInputError(
            f"{folder / foreign[0]} would be overwritten, and it is not as placer wrote it there{more}",
            f"move it elsewhere, or choose another folder with {flag}",
        )


def record_contents(folder: Path, contents: Mapping[str, bytes], flag: str = "-o") -> None:
    """Add to the list of ``folder`` files that are about to hold ``contents``; what they held before stays listed."""
    _add(folder, {name: _hash(content) for name, content in contents.items()}, flag)


def record_written(folder: Path, names: Iterable[str], flag: str = "-o") -> None:
    """Add to the list of ``folder`` files that placer has just written there."""
    _add(folder, {name: _hash_of_file(folder / name) for name in names}, flag)


def is_written(folder: Path, name: str) -> bool:
    """Whether the file ``name`` of ``folder`` is there as placer wrote it."""
    return (folder / name).is_file() and _replaceable(folder / name, _read(folder).get(name, ()), {})


def _replaceable(path: Path, hashes: Iterable[str], new: Mapping[str, bytes]) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return True
    except OSError:
        return False
    if not stat.S_ISREG(mode):
        return False
    try:
        found = _hash_of_file(path)
    except OSError:
        return False
    return found in hashes or (path.name in new and found == _hash(new[path.name]))


def _add(folder: Path, hashes: Mapping[str, str], flag: str) -> None:
    written = _read(folder)
    for name, new in hashes.items():
        written[name] = [new, *(each for each in written.get(name, ()) if each != new)][:_KEPT]
    document = {"schema": _SCHEMA, "files": dict(sorted(written.items()))}
    write_text(folder / LIST, json.dumps(document, indent=2) + "\n", flag)


def _read(folder: Path) -> dict[str, list[str]]:
    """Hashes by name; none where there is no list, or it is damaged: a file that nothing vouches for is foreign."""
    try:
        document = json.loads((folder / LIST).read_text(encoding="utf-8"))
        files = document["files"] if document["schema"] == _SCHEMA else {}
        return {name: [str(each) for each in hashes] for name, hashes in files.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _hash_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
