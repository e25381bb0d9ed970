"""Output files that appear whole or not at all: written beside their target, then renamed onto it."""

import errno
import os
import secrets
import stat
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from placer.errors import BadInputError

_OWN = ".placer-"
"""What names of files begin with that are no outputs."""
_written: deque[Path] = deque(maxlen=100)


def write_whole(path: Path, write: Callable[[Path], None], flag: str = "-o") -> None:
    """Let ``write`` fill a temporary file in the folder of ``path``, then rename it onto ``path``.

    ``flag`` is the option that named ``path``, for the messages.

    Raises
    ------
    BadInputError
        When the folder is missing or not writable, or the disk is full; nothing is left behind.
    """
    given, path = path, checked_output(path, flag=flag)
    # Named before it is there, so that an interrupt at any moment finds what to remove.
    temporary = temporary_beside(path)
    try:
        # Made by nobody else, and as readable as the user's umask allows.
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        mode = stat.S_IMODE(temporary.stat().st_mode)
        write(temporary)
        # Writers add execute permission to it, or put a file of their own in its place.
        temporary.chmod(mode | temporary.stat().st_mode & 0o111)
        os.replace(temporary, path)
        note_written(given)
    except OSError as error:
        raise BadInputError(
            f"cannot write {path}: {error.strerror or error}", write_cure(error, f"another path with {flag}")
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def write_cure(error: OSError, instead: str) -> str:
    """What to do about a write that the operating system refused; ``instead`` names what else could be chosen."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"free some space or choose {instead}"
    if error.errno == errno.EFBIG:
        return f"raise the limit of file sizes (ulimit -f) or choose {instead}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"choose {instead}, where you may write"
    return f"choose {instead}"


def temporary_beside(path: Path) -> Path:
    """A name in the folder of ``path`` that nothing has, for what will be renamed onto it."""
    return path.with_name(f"{_OWN}{secrets.token_hex(8)}")


def note_written(path: Path) -> None:
    """Let `written` tell of ``path``."""
    _written.append(path)


def written() -> tuple[Path, ...]:
    """The outputs that this process has written since `forget_written`, the last hundred, as far as they are there."""
    return tuple(
        path for path in dict.fromkeys(_written) if path.is_file() and not path.name.startswith(_OWN)
    )


def forget_written() -> None:
    """Begin anew what `written` tells."""
    _written.clear()


def checked_output(path: Path, inputs: Iterable[Path] = (), flag: str = "-o") -> Path:
    """Where an output at ``path`` will be: links are followed, so that they stay and their target changes.

    ``flag`` is the option that named ``path``, for the messages.

    Raises
    ------
    BadInputError
        When the folder is missing or not writable, or ``path`` is one of ``inputs``, or is there and is no
        regular file: a rename onto a device or a pipe would replace it.
    """
    try:
        target = Path(os.path.realpath(path))
        if target.is_symlink():
            # What is still a link when all were followed leads to itself.
            raise BadInputError(
                f"cannot write {path}: its links lead in a circle",
                f"remove it, or choose another with {flag}",
            )
        mode = target.stat().st_mode if target.exists() else None
        folder = target.parent
        if mode is not None and stat.S_ISDIR(mode):
            raise BadInputError(f"cannot write {path}: it is a directory", f"give a file name with {flag}")
        if mode is not None and not stat.S_ISREG(mode):
            raise BadInputError(
                f"cannot write {path}: it is not a regular file", f"give a file name with {flag}"
            )
        if not folder.is_dir():
            raise BadInputError(
                f"cannot write {path}: {folder} is not a folder", f"create it or choose another with {flag}"
            )
        for source in inputs:
            if source.exists() and os.path.realpath(source) == str(target):
                raise BadInputError(
                    f"cannot write {path}: it is an input of this command", f"choose another with {flag}"
                )
    except OSError as error:
        raise BadInputError(
            f"cannot write {path}: {error.strerror or error}", f"choose another with {flag}"
        ) from None
    if not os.access(folder, os.W_OK):
        raise BadInputError(f"cannot write {path}: no permission in {folder}", f"choose another with {flag}")
    return target


def output_folder(folder: Path, flag: str = "-o") -> Path:
    """``folder``, made with those above it where it is missing; ``flag`` is the option that named it.

    Raises
    ------
    BadInputError
        When it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(
            f"cannot make the folder {folder}: {error.strerror or error}",
            f"choose another folder with {flag}",
        ) from None
    return folder


def write_text(path: Path, text: str, flag: str = "-o") -> None:
    """Write ``text`` as UTF-8 to ``path``, whole or not at all (see `write_whole`)."""
    write_whole(path, lambda temporary: _write_utf8(temporary, text), flag)


def _write_utf8(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
