"""What kind of file of ours a path leads to, told from its first bytes."""

import re
import stat
from pathlib import Path

WRITTEN_BY = {
    "placement": "give a file that 'placer solve' wrote",
    "profile": "give a file that 'placer profile' wrote",
    "trace": "make one with 'placer trace import' or 'placer trace synth'",
}
"""Kinds of files that commands take from each other, and where each comes from."""

_FIRST_BYTES = 4096
_DOCUMENT = re.compile(rb'\A\s*\{\s*"schema":\s*"placer\.([a-z]{1,20})/')
_TRACE = re.compile(rb'"schema":\s*"placer\.trace/')


def file_kind(path: Path) -> str | None:
    """One of `WRITTEN_BY`, or None for any other file, and for what cannot be read."""
    try:
        # A pipe could be read but once.
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            start = file.read(_FIRST_BYTES)
    except OSError:
        return None
    if (found := _DOCUMENT.match(start)) is not None:
        kind = found.group(1).decode()
        return kind if kind in WRITTEN_BY else None
    # A safetensors file begins with the length of its header, which is JSON.
    return "trace" if start[8:9] == b"{" and _TRACE.search(start) else None
