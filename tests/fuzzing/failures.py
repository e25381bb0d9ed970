"""Inputs that once made a reader fail, kept as files: ``failures/<reader>/<start of sha256>``."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).with_name("failures")


def keep(reader: str, data: bytes) -> Path:
    """Keep ``data`` as a failure of ``reader``; equal bytes are kept once."""
    folder = FOLDER / reader
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path


def kept() -> Iterator[tuple[str, Path]]:
    """Every kept failure: the reader's name and the file."""
    for path in sorted(FOLDER.glob("*/*")):
        yield path.parent.name, path
