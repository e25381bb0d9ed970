"""docs/fuzzing.md: the latest campaign on each reader, a row each, made by the campaigns themselves."""

import platform
from importlib.metadata import version
from pathlib import Path

from fuzzing.readers import READERS
from fuzzing.tally import Tally

_TITLE = """# Fuzzing

Every reader of files that users give is handed damaged and hostile ones: sound files of this project's own writers
after one to four changes, most of which know the format (types, numbers, keys, lengths, shapes, members, lines).
A **fault** is any outcome but a result or one line that says what is wrong: a traceback, an input that takes more
than 5 seconds or 4 GiB, a process that dies, a file left behind. Every 16th input also goes through what commands do
with one that is accepted.

`make fuzz` runs the campaigns and writes their rows; `make fuzz READERS="csv npz" INPUTS=20000` runs some of them.
Equal seeds give equal inputs. A short campaign runs with the tests, and every input that ever failed is a file under
`tests/fuzzing/failures/` that a test reads again.

"""
_HEAD = (
    "| reader | inputs | accepted | refused | faults | slowest, ms | seconds | seed | with |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|---|\n"
)
_PACKAGES = ("numpy", "pandas", "pyarrow", "pydantic", "safetensors", "torch", "gguf")


def record(path: Path, name: str, tally: Tally, seed: int) -> None:
    """Write the row of reader ``name`` into the record at ``path``; the other readers' rows stay."""
    rows = _rows(path)
    versions = " ".join(f"{package} {version(package)}" for package in _PACKAGES)
    rows[name] = (
        f"| {name} | {tally.inputs:,} | {tally.accepted:,} | {tally.refused:,} | {len(tally.faults)} | "
        f"{tally.slowest_seconds * 1e3:,.0f} | {tally.seconds:,.0f} | {seed} | "
        f"Python {platform.python_version()}, {versions} |"
    )
    known = [rows[each] for each in READERS if each in rows]
    path.write_text(_TITLE + _HEAD + "\n".join(known) + "\n", encoding="utf-8")


def _rows(path: Path) -> dict[str, str]:
    """The rows that are there, by reader."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    named = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    return {name: line for name, line in named.items() if name in READERS}
