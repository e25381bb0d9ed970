"""Output files that appear whole or not at all: written beside their target, then renamed onto it."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from placer.errors import BadInputError


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file in the folder of ``path``, then rename it onto ``path``.

    Raises
    ------
    BadInputError
        When the folder is missing or not writable, or the disk is full; nothing is left behind.
    """
    path = Path(path)
    if path.is_dir():
        raise BadInputError(f"cannot write {path}: it is a directory", "give a file name with -o")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise BadInputError(
            f"cannot write {path}: {error.strerror or error}", "create the folder or choose another with -o"
        ) from None
    os.close(handle)
    temporary = Path(name)
    try:
        # mkstemp makes files private; an output is as readable as the user's umask allows.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        write(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise BadInputError(
            f"cannot write {path}: {error.strerror or error}",
            "free some space or choose another path with -o",
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 to ``path``, whole or not at all (see `write_whole`)."""
    write_whole(path, lambda temporary: _write_utf8(temporary, text))


def _write_utf8(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
