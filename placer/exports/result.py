"""What an export returns: the files it wrote and what their reader should know."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ExportResult:
    """A finished export.

    Attributes
    ----------
    runtime
        Name and revision of the runtime that the export was checked against.
    folder
        Where the files are.
    files
        Names of the files in it.
    launch_line
        What to type to start the runtime.
    notes
        What the runtime alters or needs, one sentence each.
    """

    runtime: str
    folder: Path
    files: tuple[str, ...]
    launch_line: str
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """What `placer export --json` prints."""
        return {
            "runtime": self.runtime,
            "folder": str(self.folder),
            "files": list(self.files),
            "launch": self.launch_line,
            "notes": list(self.notes),
        }
