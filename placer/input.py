"""Input files: there, a file rather than a folder, and readable, or one line that says which it is not."""

import os
import stat
from pathlib import Path

from placer.errors import BadInputError
from placer.file_kind import WRITTEN_BY, file_kind


def checked_input(path: Path, *, what: str, cure: str, regular: bool = True) -> Path:
    """``path``, which can be opened; ``what`` names the kind of file in errors, ``cure`` says where it comes from.

    ``regular`` also refuses pipes and devices, for readers that map a file or read it out of order.

    Raises
    ------
    BadInputError
        When it is missing, a directory, not readable, no regular file, or a file of ours of another kind.
    """
    path = Path(path)
    article = "an" if what[0] in "aeiou" else "a"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise BadInputError(f"cannot read {what} {path}: no such file", cure) from None
    except OSError as error:
        raise BadInputError(f"cannot read {what} {path}: {error.strerror or error}", cure) from None
    if stat.S_ISDIR(mode):
        raise BadInputError(f"{path} is a directory, where {article} {what} is expected", cure)
    if regular and not stat.S_ISREG(mode):
        raise BadInputError(f"{path} is no regular file, where {article} {what} is expected", cure)
    if not os.access(path, os.R_OK):
        raise BadInputError(f"cannot read {what} {path}: no permission", "change its permissions")
    kind = file_kind(path) if what in WRITTEN_BY else None
    if kind not in (None, what):
        raise BadInputError(f"{path} is a {kind}, where {article} {what} is expected", WRITTEN_BY[what])
    return path
