"""One reader's campaign: inputs read by a worker, which is started again where it dies or hangs."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzzing.corpus import IN_MEMORY
from fuzzing.failures import keep
from fuzzing.readers import READERS
from fuzzing.tally import Tally
from fuzzing.worker import REPORT_EVERY

STALLED_SECONDS = 60.0
"""An alarm does not reach native code that never returns: a worker without news for so long is ended."""


def campaign(name: str, inputs: int, seed: int) -> Tally:
    """The tally of ``inputs`` inputs of the campaign with ``seed`` on reader ``name``; faults are kept as files."""
    total = Tally()
    while total.inputs < inputs:
        with TemporaryDirectory(dir=IN_MEMORY) as folder:
            died = _run(name, Path(folder), seed, total.inputs, inputs)
            total = total.joined(_tally(Path(folder) / "tally.json"))
            if died is not None:
                # Inputs since the last report are passed over, and the one that was being read is kept.
                kept = keep(name, (Path(folder) / "files" / READERS[name].file).read_bytes())
                total = total.joined(Tally(inputs=REPORT_EVERY, faults={f"{died} ({kept.name})": 1}))
    return total


def _run(name: str, folder: Path, seed: int, start: int, stop: int) -> str | None:
    """How the worker died, or None when it came to its end."""
    arguments = [name, str(folder), str(seed), str(start), str(stop)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen([sys.executable, "-m", "fuzzing.worker", *arguments], env=environment) as process:
        news, seen = time.monotonic(), 0.0
        while process.poll() is None:
            time.sleep(0.2)
            changed = _changed(folder)
            if changed != seen:
                news, seen = time.monotonic(), changed
            if time.monotonic() - news > STALLED_SECONDS:
                process.kill()
                return f"no answer within {STALLED_SECONDS:g} s, and no alarm reached it"
    return None if process.returncode == 0 else f"the process ended with {process.returncode}"


def _changed(folder: Path) -> float:
    return max((path.stat().st_mtime for path in (folder / "files").glob("*")), default=0.0)


def _tally(path: Path) -> Tally:
    return Tally(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Tally()
