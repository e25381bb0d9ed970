"""The process that reads a campaign's inputs: limited in memory, and expendable."""

import json
import os
import resource
import sys
import time
from dataclasses import asdict
from pathlib import Path

from fuzzing.corpus import nth_input, seeds
from fuzzing.failures import keep
from fuzzing.readers import READERS
from fuzzing.tally import Tally
from fuzzing.trial import trial

MOST_BYTES = 4 * 2**30
"""Beyond what libraries map by themselves."""
USED_EVERY = 50
"""Every so many inputs are also used as commands use them."""
REPORT_EVERY = 200


def main(name: str, folder: Path, seed: int, start: int, stop: int) -> None:
    """Give inputs ``start`` to ``stop`` of a campaign to reader ``name``; the tally goes to ``folder``/tally.json.

    The input that is being read lies in the reader's own file in ``folder``/files: where this process dies, that
    one did it.
    """
    reader, files = READERS[name], folder / "files"
    files.mkdir(exist_ok=True)
    reader.prepare(files)
    beside = {path.name for path in files.iterdir()} | {reader.file}
    samples = seeds(reader)
    limit_memory()
    path, tally, started = files / reader.file, Tally(), time.perf_counter()
    for number in range(start, stop):
        data = nth_input(reader, samples, seed, number)
        if tally.add(trial(reader, path, data, use=number % USED_EVERY == 0)):
            keep(name, data)
        if tally.inputs % REPORT_EVERY == 0 or number + 1 == stop:
            tally.seconds = time.perf_counter() - started
            tally.left_behind = sorted({path.name for path in files.iterdir()} - beside)
            report(folder / "tally.json", tally)


def limit_memory() -> None:
    """Let this process map `MOST_BYTES` more than it has."""
    mapped = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MOST_BYTES,) * 2)


def report(path: Path, tally: Tally) -> None:
    """Write ``tally`` to ``path``, whole."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(asdict(tally)), encoding="utf-8")
    os.replace(temporary, path)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:6]))
