"""Run a timing campaign in its own process and collect the samples it leaves."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import placer.errors
from placer.errors import MissingComponentError, PlacerError
from placer.output import write_text
from placer.profiler.timing.journal import Journal
from placer.profiler.timing.samples import Event, Samples, read_samples
from placer.profiler.timing.spec import CampaignSpec

POLL_SECONDS = 0.05
STALL_SECONDS = 120.0
"""Silence after which a worker counts as hung: far longer than any single call."""
STARTUP_SECONDS = 60.0
"""Silence granted before the first sign: Python and torch are being read from a disk."""
TRY_STALLED = "close other programs and try again"
"""What to do first about a process that was too slow to tell from one that hangs."""


@dataclass(frozen=True)
class Progress:
    """``stage`` is what goes on, as one says it after "while" ("timing"); ``done`` of ``total`` parts are over."""

    stage: str
    done: int
    total: int


def silence(seconds: float) -> str:
    """What is known of a process that was not heard of for ``seconds``."""
    return f"no sign of life for {seconds:.0f} s; this machine is busy or slow, or the step hangs"


def time_campaign(
    spec: CampaignSpec,
    progress: Callable[[Progress], None] | None = None,
    *,
    keep_samples: Path | None = None,
    stall_seconds: float = STALL_SECONDS,
    python: str = sys.executable,
) -> Samples:
    """Run the worker for ``spec`` and return its samples.

    The worker is killed when this is interrupted, when it falls silent for ``stall_seconds``, or when it
    takes twice its time.

    Parameters
    ----------
    keep_samples
        Folder that raw samples are written to as they come (`Journal`). What an earlier run of the same spec
        left there counts: the campaign goes on where that one stopped, or is read back where it had ended.
    python
        Interpreter of an environment that holds the kernel's library beside placer.

    Raises
    ------
    MissingComponentError
        When the kernel cannot run here, crashes or hangs; the message names it and where it was.
    BadInputError
        When no call fits into the time, or the kept samples are of another campaign.
    """
    if keep_samples is None:
        return _time(spec, None, progress, stall_seconds, python)
    with contextlib.closing(Journal(keep_samples, spec)) as journal:
        return _time(spec, journal, progress, stall_seconds, python)


def _time(
    spec: CampaignSpec,
    journal: Journal | None,
    progress: Callable[[Progress], None] | None,
    stall_seconds: float,
    python: str,
) -> Samples:
    earlier = [] if journal is None else [*journal.events]
    earlier_s = sum(event["used"]["wall_s"] for event in earlier if event["event"] == "round")
    if journal is not None and journal.finished:
        samples = read_samples(earlier, seconds=earlier_s, notes=(journal.reread_note,))
        return replace(samples, kept_in=journal.path.parent)
    notes: tuple[str, ...] = ()
    if journal is not None and journal.rounds:
        notes = (f"{journal.rounds} rounds of an earlier run were read from {journal.path}",)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="placer-timing-") as folder:
        spec_path, out_path, log_path = (Path(folder) / name for name in ("spec.json", "out.jsonl", "log"))
        write_text(spec_path, spec.to_json())
        out_path.touch()
        with log_path.open("wb") as log:
            events = _run_worker(spec, spec_path, out_path, log, journal, progress, stall_seconds, python)
        if not events or events[-1]["event"] != "done":
            raise _failure(spec, events, log_path.read_text(encoding="utf-8", errors="replace"))
    samples = read_samples([*earlier, *events], seconds=earlier_s + time.monotonic() - started, notes=notes)
    return samples if journal is None else replace(samples, kept_in=journal.path.parent)


def _run_worker(
    spec: CampaignSpec,
    spec_path: Path,
    out_path: Path,
    log: BinaryIO,
    journal: Journal | None,
    progress: Callable[[Progress], None] | None,
    stall_seconds: float,
    python: str,
) -> list[Event]:
    """Events in order; the last one is ``ended`` or ``stalled`` when the worker did not finish by itself."""
    # -P keeps the working folder off the module path, where a folder may be called like a package.
    command = [python, "-P", "-m", "placer.profiler.timing.worker", str(spec_path), str(out_path)]
    if journal is not None:
        command.append(str(journal.path))
    environment = {**os.environ, "OMP_NUM_THREADS": str(spec.threads)}
    events: list[Event] = []
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,  # Ctrl-C reaches this process alone, which then kills the worker.
    )
    hard_end = time.monotonic() + 2 * spec.max_seconds + stall_seconds
    last_sign = time.monotonic() + max(0.0, STARTUP_SECONDS - stall_seconds)
    try:
        with out_path.open("rb") as out:
            while True:
                ended = process.poll()
                for event in _new_events(out):
                    last_sign = time.monotonic()
                    if event["event"] == "progress":
                        if progress is not None:
                            progress(Progress(event["stage"], event["done"], event["total"]))
                        events = [each for each in events if each["event"] != "progress"]
                    events.append(event)
                    if journal is not None:
                        journal.append(event)
                if ended is not None:
                    if ended != 0:
                        events.append({"event": "ended", "code": ended})
                    return events
                if time.monotonic() > last_sign + stall_seconds:
                    events.append({"event": "stalled", "how": silence(stall_seconds)})
                    return events
                if time.monotonic() > hard_end:
                    late = f"not done in twice {spec.max_seconds:.0f} s; this machine is busy, or the time too short"
                    events.append({"event": "stalled", "how": late})
                    return events
                time.sleep(POLL_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _new_events(out: BinaryIO) -> Iterator[Event]:
    while True:
        position = out.tell()
        line = out.readline()
        if not line.endswith(b"\n"):
            out.seek(position)  # A line still being written: read it whole next time.
            return
        yield json.loads(line)


def _failure(spec: CampaignSpec, events: list[Event], log: str) -> PlacerError:
    for event in events:
        if event["event"] == "error":
            kind: type[PlacerError] = getattr(placer.errors, event["kind"])
            return kind(event["what"], event["hint"])
    name = f"kernel {spec.backend} (hidden size {spec.shape.hidden_size}, expert width "
    name += f"{spec.shape.expert_intermediate_size}, {spec.threads} threads)"
    stages = [event["stage"] for event in events if event["event"] == "progress"]
    where = f"while {stages[-1]}" if stages else "while starting"
    rounds = sum(event["event"] == "round" for event in events)
    if rounds:
        where += f", after {rounds} rounds"
    end = events[-1] if events else {}
    code = int(end.get("code", 0))
    if "how" in end:
        what = f"{name} was stopped {where}: {end['how']}"
    elif code < 0:
        what = f"{name} was killed by {signal.Signals(-code).name} {where}"
    else:
        lines = [line for line in log.splitlines() if line.strip()]
        what = f"{name} ended with code {code} {where}: {lines[-1] if lines else 'no message'}"
    cure = "use --gpu NAME for its datasheet"
    if spec.device == "cpu":
        cure = "profile on another machine" if spec.backend == "torch" else "use --cpu-kernel torch"
    return MissingComponentError(
        what, f"{TRY_STALLED if 'how' in end else 'try again'}; if it repeats, {cure}"
    )
