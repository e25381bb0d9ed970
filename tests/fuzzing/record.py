"""docs/fuzzing.md: what the campaigns on each reader have come to, a row each, which the next ones add to."""

import fcntl
import platform
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from fuzzing.failures import kept
from fuzzing.readers import READERS
from fuzzing.tally import Tally

_TITLE = """# Fuzzing

Every reader of files that users give is handed damaged and hostile ones: sound files of this project's own writers
after one to four changes, most of which know the format (types, numbers, keys, lengths, shapes, members, lines).
A **fault** is any outcome but a result or one line that says what is wrong: a traceback, an input that takes more
than 5 seconds or 4 GiB, a process that dies, a file left behind. Every 50th input also goes through what commands do
with one that is accepted.

`make fuzz` goes on until every reader has had 200,000 inputs, and writes the rows below;
`make fuzz READERS="csv npz" INPUTS=20000` runs some of them. Equal seeds give equal inputs. A short campaign runs with
the tests, and every input that ever failed is a file under `tests/fuzzing/failures/` that a test reads again: the
column *mended* counts them, *faults* those that are left.

"""
_HEAD = (
    "| reader | inputs | accepted | refused | faults | mended | slowest, ms | seconds | seed | with |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|\n"
)
_PACKAGES = ("numpy", "pandas", "pyarrow", "pydantic", "safetensors", "torch", "gguf")


def record(path: Path, name: str, tally: Tally, seed: int) -> None:
    """Add ``tally`` to the row of reader ``name`` in the record at ``path``; the other readers' rows stay.

    Numbers of another seed are replaced.
    """
    path.touch()
    with path.open("r+", encoding="utf-8") as file:
        # Campaigns on several readers may run at once.
        fcntl.flock(file, fcntl.LOCK_EX)
        rows = _rows(file.read())
        tally = _tally(rows.get(name), seed).joined(tally)
        mended = Counter(reader for reader, _ in kept())[name] - len(tally.faults)
        versions = ", ".join(f"{package} {version(package)}" for package in _PACKAGES)
        rows[name] = (
            f"| {name} | {tally.inputs:,} | {tally.accepted:,} | {tally.refused:,} | {len(tally.faults)} | {mended} | "
            f"{tally.slowest_seconds * 1e3:,.0f} | {tally.seconds:,.0f} | {seed} | "
            f"Python {platform.python_version()}, {versions} |"
        )
        known = [rows[each] for each in READERS if each in rows]
        file.seek(0)
        file.write(_TITLE + _HEAD + "\n".join(known) + "\n")
        file.truncate()


def recorded_inputs(path: Path, name: str, seed: int) -> int:
    """Inputs of the campaign with ``seed`` that reader ``name`` has had by the record at ``path``."""
    return _tally(_rows(path.read_text(encoding="utf-8")).get(name), seed).inputs if path.exists() else 0


def _rows(text: str) -> dict[str, str]:
    """The rows that are there, by reader."""
    named = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    return {name: line for name, line in named.items() if name in READERS}


def _tally(row: str | None, seed: int) -> Tally:
    if row is None:
        return Tally()
    cells = [cell.strip().replace(",", "") for cell in row.split("|")[2:10]]
    inputs, accepted, refused, _, _, slowest_ms, seconds, found = map(int, cells)
    return Tally(inputs, accepted, refused, slowest_ms / 1e3, seconds) if found == seed else Tally()
