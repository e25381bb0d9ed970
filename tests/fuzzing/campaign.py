"""One reader's campaign: inputs read by a worker, which is started again where it dies or hangs."""

import contextlib
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

STALLED_SECONDS = 300.0
"""An alarm does not reach native code that never returns: a worker without news for so long is ended."""


def campaign(
    name: str, start: int, stop: int, seed: int, *, most_seconds: float = 1e9, guided: bool = False
) -> Tally:
    """The tally of inputs ``start`` to ``stop`` of the campaign with ``seed`` on reader ``name``.

    Faults are kept as files. With ``guided`` the inputs are those that `fuzzing.guided` makes. After
    ``most_seconds`` it ends where it is.
    """
    total, deadline = Tally(), time.monotonic() + most_seconds
    while start + total.inputs < stop and time.monotonic() < deadline:
        with TemporaryDirectory(dir=IN_MEMORY) as folder:
            died = _run(name, Path(folder), seed, (start + total.inputs, stop), deadline, guided)
            total = total.joined(_tally(Path(folder) / "tally.json"))
            if died is not None:
                # Inputs since the last report are passed over, and the one that was being read is kept.
                kept = keep(name, (Path(folder) / "files" / READERS[name].file).read_bytes())
                total = total.joined(Tally(inputs=REPORT_EVERY, faults={f"{died} ({kept.name})": 1}))
    for left in total.left_behind:
        total.faults[f"left {left} behind"] = 1
    return total


def _run(
    name: str, folder: Path, seed: int, numbers: tuple[int, int], deadline: float, guided: bool
) -> str | None:
    """How the worker died, or None when it came to its end or the time was over."""
    arguments = [name, str(folder), str(seed), *map(str, numbers)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    module = "fuzzing.guided" if guided else "fuzzing.worker"
    # The guide names every module that it watches.
    quiet = subprocess.DEVNULL if guided else None
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments], env=environment, stderr=quiet
    ) as process:
        news, seen = time.monotonic(), 0.0
        while process.poll() is None:
            time.sleep(0.2)
            changed = _changed(folder)
            if changed != seen:
                news, seen = time.monotonic(), changed
            if time.monotonic() > deadline:
                process.kill()
                return None
            if time.monotonic() - news > STALLED_SECONDS:
                process.kill()
                return f"no answer within {STALLED_SECONDS:g} s, and no alarm reached it"
    return None if process.returncode == 0 else f"the process ended with {process.returncode}"


def _changed(folder: Path) -> float:
    latest = 0.0
    for path in (folder / "files").glob("*"):
        # Readers replace and remove files meanwhile.
        with contextlib.suppress(FileNotFoundError):
            latest = max(latest, path.stat().st_mtime)
    return latest


def _tally(path: Path) -> Tally:
    return Tally(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Tally()
