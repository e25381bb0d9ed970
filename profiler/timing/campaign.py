"""Run a timing campaign in its own process and collect the samples it leaves."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

import placer.errors
from placer.errors import MissingComponentError, PlacerError
from placer.output import write_text
from placer.profiler.timing.call import Call, TimedCall
from placer.profiler.timing.machine import Bandwidth, Machine
from placer.profiler.timing.rounds import QUIET_MOVEMENT, anchor_movement
from placer.profiler.timing.spec import CampaignSpec, call_from_json

QUIET_CORES = 0.25
"""Other programs that take more than this slow a campaign steadily, which no movement would show."""
POLL_SECONDS = 0.05
STALL_SECONDS = 120.0
"""Silence after which a worker counts as hung: far longer than any single call."""
STARTUP_SECONDS = 60.0
"""Silence granted before the first sign: Python and torch are being read from a disk."""
ESTIMATOR_QUANTILE = 0.25
"""Lower quartile: of the estimators tried the one whose sampling error falls fastest on a busy machine."""


@dataclass(frozen=True)
class Progress:
    """``stage`` is "bandwidth", "loading", "checking", "border" or "timing"; ``done`` of ``total`` parts are over."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class LoadedKernel:
    """What the worker loaded: see `ExpertMLP` for the words; ``note`` where memory was short.

    ``output_error`` is that of `check_output`.
    """

    method: str
    variant: str
    version: str
    layers: int
    resident_bytes: int
    bytes_per_expert: int
    output_error: float
    note: str | None


@dataclass(frozen=True)
class Samples:
    """All samples of a campaign.

    Attributes
    ----------
    calls
        N calls.
    times_us
        float [rounds, N], one sample of every call per round.
    anchor_us
        float [rounds, A], repeated samples of one call per round.
    border, border_how
        Last token count of the first regime (None: one regime), and how it was found.
    bandwidth
        Memory read in the same run, by one thread, by the kernel's, by one per core.
    other_cores
        Cores that other programs kept busy while calls were timed, on average.
    """

    calls: tuple[Call, ...]
    times_us: NDArray[np.float64]
    anchor_us: NDArray[np.float64]
    border: int | None
    border_how: str
    kernel: LoadedKernel
    machine: Machine
    bandwidth: tuple[Bandwidth, ...]
    other_cores: float
    notes: tuple[str, ...]
    seconds: float

    def timed(self) -> tuple[TimedCall, ...]:
        """Every call with the lower quartile of its samples."""
        quartiles = np.quantile(self.times_us, ESTIMATOR_QUANTILE, axis=0)
        return tuple(TimedCall(call, float(us)) for call, us in zip(self.calls, quartiles, strict=True))

    def quiet_warning(self) -> str | None:
        """A sentence when the machine was not quiet, else None."""
        movement = anchor_movement(self.anchor_us.tolist())
        moved, busy = movement > QUIET_MOVEMENT, self.other_cores > QUIET_CORES
        if not moved and not busy:
            return None
        signs = [f"the same call moved by {movement:.0%} from round to round"] if moved else []
        if busy:
            signs.append(f"other programs kept {self.other_cores:.1f} cores busy")
        cure = "close them and repeat" if busy else "nothing else ran here, so look at clocks or at the host"
        return f"the machine was not quiet: {' and '.join(signs)}; {cure}"


def time_campaign(
    spec: CampaignSpec,
    progress: Callable[[Progress], None] | None = None,
    *,
    stall_seconds: float = STALL_SECONDS,
) -> Samples:
    """Run the worker for ``spec`` and return its samples.

    The worker is killed when this is interrupted, when it falls silent for ``stall_seconds``, or when it
    takes twice its time.

    Raises
    ------
    MissingComponentError
        When the kernel cannot run here, crashes or hangs; the message names it and where it was.
    BadInputError
        When no call fits into the time.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="placer-timing-") as folder:
        spec_path, out_path, log_path = (Path(folder) / name for name in ("spec.json", "out.jsonl", "log"))
        write_text(spec_path, spec.to_json())
        out_path.touch()
        with log_path.open("wb") as log:
            events = _run_worker(spec, spec_path, out_path, log, progress, stall_seconds)
        if not events or events[-1]["event"] != "done":
            raise _failure(spec, events, log_path.read_text(encoding="utf-8", errors="replace"))
    return _samples(spec, events, time.monotonic() - started)


def _run_worker(
    spec: CampaignSpec,
    spec_path: Path,
    out_path: Path,
    log: BinaryIO,
    progress: Callable[[Progress], None] | None,
    stall_seconds: float,
) -> list[dict[str, Any]]:
    """Events in order; the last one is ``ended`` or ``stalled`` when the worker did not finish by itself."""
    # -P keeps the working folder off the module path, where a folder may be called like a package.
    command = [sys.executable, "-P", "-m", "placer.profiler.timing.worker", str(spec_path), str(out_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(spec.threads)}
    events: list[dict[str, Any]] = []
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
                if ended is not None:
                    if ended != 0:
                        events.append({"event": "ended", "code": ended})
                    return events
                if time.monotonic() > last_sign + stall_seconds:
                    events.append({"event": "stalled", "how": f"no sign of life for {stall_seconds:.0f} s"})
                    return events
                if time.monotonic() > hard_end:
                    events.append({"event": "stalled", "how": f"not done in twice {spec.max_seconds:.0f} s"})
                    return events
                time.sleep(POLL_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _new_events(out: BinaryIO) -> Iterator[dict[str, Any]]:
    while True:
        position = out.tell()
        line = out.readline()
        if not line.endswith(b"\n"):
            out.seek(position)  # A line still being written: read it whole next time.
            return
        yield json.loads(line)


def _failure(spec: CampaignSpec, events: list[dict[str, Any]], log: str) -> PlacerError:
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
        what = f"{name} hung {where}: {end['how']}"
    elif code < 0:
        what = f"{name} was killed by {signal.Signals(-code).name} {where}"
    else:
        lines = [line for line in log.splitlines() if line.strip()]
        what = f"{name} ended with code {code} {where}: {lines[-1] if lines else 'no message'}"
    cure = "use --gpu NAME for its datasheet"
    if spec.device == "cpu":
        cure = "profile on another machine" if spec.backend == "torch" else "use --cpu-kernel torch"
    return MissingComponentError(what, f"try again; if it repeats, {cure}")


def _samples(spec: CampaignSpec, events: list[dict[str, Any]], seconds: float) -> Samples:
    found = {event["event"]: event for event in events}
    rounds = [event for event in events if event["event"] == "round"]
    plan = [call_from_json(fields) for fields in found["plan"]["calls"]]
    loaded = LoadedKernel(**_fields(found["loaded"]))
    facts = _fields(found["machine"])
    notes = [*found["done"]["notes"], *([loaded.note] if loaded.note else [])]
    return Samples(
        calls=tuple(plan[index] for index in rounds[0]["kept"]),
        times_us=np.array([event["times_us"] for event in rounds], dtype=np.float64),
        anchor_us=np.array([event["anchor_us"] for event in rounds], dtype=np.float64),
        border=found["plan"]["border"],
        border_how=found["plan"]["how"],
        kernel=loaded,
        machine=Machine(**{**facts, "isa": tuple(facts["isa"])}),
        bandwidth=tuple(Bandwidth(**_fields(event)) for event in events if event["event"] == "bandwidth"),
        other_cores=found["done"]["other_cores"],
        notes=tuple(notes),
        seconds=seconds,
    )


def _fields(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "event"}
