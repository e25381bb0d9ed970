"""An export folder: files that are written aside, checked there, and then appear together."""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from placer.errors import BadInputError
from placer.output import note_written, temporary_beside, write_cure, write_whole
from placer.written_files import check_replaceable, is_written, record_contents


@dataclass(frozen=True)
class ExportFile:
    """One file of an export; ``executable`` files are scripts."""

    name: str
    content: bytes
    executable: bool = False

    def write(self, path: Path) -> None:
        """Write the content to ``path``, with execute permission where it is readable."""
        path.write_bytes(self.content)
        if self.executable:
            readable = path.stat().st_mode & 0o444
            path.chmod(path.stat().st_mode | readable >> 2)


def write_folder(
    folder: Path,
    files: Sequence[ExportFile],
    *,
    check: Callable[[Path], None],
    stale: Iterable[str] = (),
) -> None:
    """Write ``files`` into ``folder``, once ``check`` has passed on a staged copy of all of them.

    A new folder appears whole; in one that exists each file of an earlier export is replaced whole, and those of
    them named in ``stale`` go. Files that placer did not write stay.

    Raises
    ------
    BadInputError
        When the folder cannot be written, holds the export of another runtime, or has a file of the same name that
        is not as placer wrote it there; what ``check`` raises passes through. Nothing is left behind.
    """
    folder = Path(folder)
    exists = folder.is_dir()
    if folder.exists() and not exists:
        raise BadInputError(f"cannot write {folder}: it is a file", "give a folder with -o")
    contents = {file.name: file.content for file in files}
    if exists:
        _check_same_runtime(folder, files)
        check_replaceable(folder, contents, new=contents)
    # Named before it is there, so that an interrupt at any moment finds what to remove.
    staged = temporary_beside(folder / "file" if exists else folder)
    try:
        staged.mkdir()
        for file in files:
            file.write(staged / file.name)
        check(staged)
        if exists:
            record_contents(folder, contents)
            for file in files:
                write_whole(folder / file.name, file.write)
            for name in stale:
                if is_written(folder, name):
                    (folder / name).unlink(missing_ok=True)
        else:
            record_contents(staged, contents)
            os.rename(staged, folder)
            for file in files:
                note_written(folder / file.name)
    except OSError as error:
        cure = write_cure(error, "another folder with -o")
        if not folder.parent.is_dir():
            cure = f"create {folder.parent} or {cure}"
        raise BadInputError(f"cannot write {folder}: {error.strerror or error}", cure) from None
    finally:
        _remove(staged)


def _remove(folder: Path) -> None:
    """Remove ``folder`` and what is in it, also when an interrupt comes meanwhile."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise


_STARTS = re.compile(rb"^# Starts (.*\(written by placer)", re.MULTILINE)
"""The line in which a launch.sh says what it starts."""


def _check_same_runtime(folder: Path, files: Sequence[ExportFile]) -> None:
    """Raise BadInputError where ``folder`` holds the launch.sh of another runtime; its version may differ."""
    launch = folder / "launch.sh"
    try:
        found = _starts(launch.read_bytes()) if launch.is_file() else None
    except OSError as error:
        raise BadInputError(
            f"cannot read {launch}: {error.strerror or error}", "choose another folder with -o"
        ) from None
    made = next((_starts(file.content) for file in files if file.name == "launch.sh"), None)
    if found is not None and made is not None and found != made:
        raise BadInputError(
            f"{folder} holds an export for another runtime, and the two would be mixed",
            "choose another folder with -o, or remove this one",
        )


def _starts(script: bytes) -> bytes | None:
    match = _STARTS.search(script)
    return None if match is None else re.sub(rb" [0-9]\S*", b"", match.group(1))
