"""A module that times kernels, run as a process of its own: followed through lines of JSON, and killed when silent."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import placer.errors
from placer.errors import MissingComponentError, PlacerError
from placer.output import write_text
from placer.profiler.timing.campaign import POLL_SECONDS, TRY_STALLED, Progress, silence

STALL_SECONDS = 300.0
"""Silence after which the process counts as hung: some kernels are compiled for every shape, a minute each."""


def run_worker(
    module: str,
    spec: str,
    *,
    what: str,
    cure: str,
    progress: Callable[[Progress], None] | None = None,
    stall_seconds: float = STALL_SECONDS,
) -> dict[str, Any]:
    """Run ``python -m module SPEC OUT`` and return its last event, which is ``done``.

    Parameters
    ----------
    spec
        JSON that the module reads from SPEC. It appends events to OUT as `worker.ResultFile` writes them.
    what, cure
        What it does ("timing attention and projections"), and what to do without it, for errors.

    Raises
    ------
    PlacerError
        What the module reported by an event ``error``.
    MissingComponentError
        When it crashes, or is silent for ``stall_seconds``.
    """
    with tempfile.TemporaryDirectory(prefix="placer-timing-") as folder:
        spec_path, out_path, log_path = (Path(folder) / name for name in ("spec.json", "out.jsonl", "log"))
        write_text(spec_path, spec)
        out_path.touch()
        with log_path.open("wb") as log:
            # -P keeps the working folder off the module path, where a folder may be called like a package.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(spec_path), str(out_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches this process alone, which then kills the worker.
            )
            try:
                last = _followed(process, out_path, progress, stall_seconds)
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()
        if last.get("event") == "done":
            return last
        text = log_path.read_text(encoding="utf-8", errors="replace")
        raise _failure(last, process.returncode, text, what, cure)


def _followed(
    process: subprocess.Popen[bytes],
    out_path: Path,
    progress: Callable[[Progress], None] | None,
    stall_seconds: float,
) -> dict[str, Any]:
    """The last whole event once the process has ended, or has been silent too long."""
    last: dict[str, Any] = {}
    last_sign = time.monotonic()
    with out_path.open("rb") as out:
        while True:
            ended = process.poll() is not None
            position = out.tell()
            line = out.readline()
            if line.endswith(b"\n"):
                last, last_sign = json.loads(line), time.monotonic()
                if progress is not None and last["event"] == "progress":
                    progress(Progress(last["stage"], last["done"], last["total"]))
                continue
            out.seek(position)  # A line still being written: read it whole next time.
            if ended:
                return last
            if time.monotonic() > last_sign + stall_seconds:
                return {"event": "stalled", "stage": last.get("stage"), "seconds": stall_seconds}
            time.sleep(POLL_SECONDS)


def _failure(last: dict[str, Any], code: int, log: str, what: str, cure: str) -> PlacerError:
    if last.get("event") == "error":
        kind: type[PlacerError] = getattr(placer.errors, last["kind"])
        return kind(last["what"], last["hint"])
    where = f"while {last['stage']}" if last.get("stage") else "while starting"
    if last.get("event") == "stalled":
        how, again = silence(last["seconds"]), TRY_STALLED
    else:
        lines = [line for line in log.splitlines() if line.strip()]
        how, again = f"ended with code {code}: {lines[-1] if lines else 'no message'}", "try again"
    return MissingComponentError(f"{what} {where}: {how}", f"{again}; if it repeats, {cure}")
