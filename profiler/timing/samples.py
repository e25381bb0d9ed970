"""All samples of a campaign, put together from the events that its worker wrote."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.profiler.timing.call import Call, TimedCall
from placer.profiler.timing.machine import Arithmetic, Bandwidth, Machine
from placer.profiler.timing.processor_time import ProcessorTime
from placer.profiler.timing.quiet import anchor_movement, quiet_warning, undisturbed
from placer.profiler.timing.spec import call_from_json

ESTIMATOR_QUANTILE = 0.25
"""Lower quartile: of the estimators tried the one whose sampling error falls fastest on a busy machine."""

Event = dict[str, Any]
"""One line of the worker: its ``event``, and what belongs to it."""


@dataclass(frozen=True)
class LoadedKernel:
    """What the worker loaded: see `ExpertMLP` for the words.

    Attributes
    ----------
    note
        Where memory was short.
    output_error
        That of `check_output`; None in samples that earlier versions kept.
    """

    method: str
    variant: str
    version: str
    layers: int
    resident_bytes: int
    bytes_per_expert: int
    note: str | None
    output_error: float | None = None


@dataclass(frozen=True)
class Samples:
    """The samples of a campaign, without those of rounds that `undisturbed` drops.

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
    border_contrast
        Ratio of the times on both sides of the border; None where there is none, or in older samples.
    bandwidth
        Memory read in the same run, by one thread, by the kernel's, by one per core.
    arithmetic
        Dense products in the same run, by the kernel's threads.
    used
        Processor time of all rounds together.
    kept_in
        The folder that the samples are kept in and read back from, or None.
    """

    calls: tuple[Call, ...]
    times_us: NDArray[np.float64]
    anchor_us: NDArray[np.float64]
    border: int | None
    border_how: str
    kernel: LoadedKernel
    machine: Machine
    bandwidth: tuple[Bandwidth, ...]
    arithmetic: tuple[Arithmetic, ...]
    used: ProcessorTime
    notes: tuple[str, ...]
    seconds: float
    border_contrast: float | None = None
    kept_in: Path | None = None

    def timed(self) -> tuple[TimedCall, ...]:
        """Every call with the lower quartile of its samples."""
        quartiles = np.quantile(self.times_us, ESTIMATOR_QUANTILE, axis=0)
        return tuple(TimedCall(call, float(us)) for call, us in zip(self.calls, quartiles, strict=True))

    def quiet_warning(self) -> str | None:
        """A sentence when the machine was not quiet, else None."""
        found = quiet_warning(anchor_movement(self.anchor_us), self.used)
        if found is None or self.kept_in is None:
            return found
        return f"{found}; first remove the folder {self.kept_in}: the same command reads these samples back"


def read_samples(events: list[Event], *, seconds: float, notes: tuple[str, ...] = ()) -> Samples:
    """The samples in the events of a finished campaign, or of one that went on where an earlier run stopped.

    ``seconds`` is its wall time; ``notes`` come before the worker's own.
    """
    # Where a run went on, machine and bandwidth were written again: the last ones are of the last rounds.
    found = {event["event"]: event for event in events}
    every_round = [event for event in events if event["event"] == "round"]
    kept = undisturbed([ProcessorTime(**event["used"]) for event in every_round])
    rounds = [every_round[index] for index in kept]
    dropped = len(every_round) - len(rounds)
    plan = planned_calls(found["plan"])
    loaded = LoadedKernel(**fields(found["loaded"]))
    facts = fields(found["machine"])
    used = [ProcessorTime(**event["used"]) for event in rounds]
    speeds = {(e["device"], e["threads"]): e for e in events if e["event"] == "bandwidth"}
    products = {(e["device"], e["threads"], e["dtype"]): e for e in events if e["event"] == "arithmetic"}
    return Samples(
        calls=tuple(plan[index] for index in rounds[0]["kept"]),
        times_us=np.array([event["times_us"] for event in rounds], dtype=np.float64),
        anchor_us=np.array([event["anchor_us"] for event in rounds], dtype=np.float64),
        border=found["plan"]["border"],
        border_how=found["plan"]["how"],
        kernel=loaded,
        machine=Machine(**{**facts, "isa": tuple(facts["isa"])}),
        bandwidth=tuple(Bandwidth(**fields(event)) for event in speeds.values()),
        arithmetic=tuple(Arithmetic(**fields(event)) for event in products.values()),
        used=sum(used[1:], used[0]),
        notes=(
            *notes,
            *found["plan"]["notes"],
            *found["done"]["notes"],
            *(
                [f"{dropped} of {len(every_round)} rounds were left out: other programs ran meanwhile"]
                if dropped
                else []
            ),
            *([loaded.note] if loaded.note else []),
        ),
        seconds=seconds,
        border_contrast=found["plan"].get("contrast"),
    )


def planned_calls(plan: Event) -> tuple[Call, ...]:
    """The calls of a "plan" event."""
    return tuple(call_from_json(call) for call in plan["calls"])


def fields(event: Event) -> dict[str, Any]:
    """What belongs to an event, without its name."""
    return {name: value for name, value in event.items() if name != "event"}
