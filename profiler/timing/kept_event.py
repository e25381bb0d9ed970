"""What a line of kept samples may hold: events are checked where they are read back, for any file may be damaged."""

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NoReturn

from pydantic import Field, TypeAdapter

from placer.profiler.timing.call import Call
from placer.profiler.timing.machine import Arithmetic, Bandwidth, Machine
from placer.profiler.timing.processor_time import ProcessorTime
from placer.profiler.timing.samples import Event, LoadedKernel

_Us = Annotated[float, Field(gt=0, lt=1e12)]


@dataclass(frozen=True)
class _Head:
    schema: str
    spec: dict[str, Any]


@dataclass(frozen=True)
class _Plan:
    calls: tuple[Call, ...]
    border: int | None
    how: str
    notes: tuple[str, ...]
    contrast: float | None = None


@dataclass(frozen=True)
class _Round:
    index: int
    kept: tuple[int, ...]
    times_us: tuple[_Us, ...]
    anchor_us: Annotated[tuple[_Us, ...], Field(min_length=1)]
    used: ProcessorTime


@dataclass(frozen=True)
class _Done:
    notes: tuple[str, ...]


_KINDS: dict[str, TypeAdapter[Any]] = {
    "campaign": TypeAdapter(_Head),
    "machine": TypeAdapter(Machine),
    "bandwidth": TypeAdapter(Bandwidth),
    "arithmetic": TypeAdapter(Arithmetic),
    "loaded": TypeAdapter(LoadedKernel),
    "plan": TypeAdapter(_Plan),
    "round": TypeAdapter(_Round),
    "done": TypeAdapter(_Done),
}
_NEEDED = {"round": {"plan"}, "done": {"machine", "loaded", "plan", "round"}}
"""Events that must have come before an event."""


def kept_event(line: str, before: list[Event]) -> Event:
    """The event on a line of kept samples; ``before`` are those of the lines above.

    Raises
    ------
    ValueError
        When it is no event, lacks a field or holds one of another type, or does not belong to those before it.
    """
    try:
        event = json.loads(line, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    kind = event.get("event") if isinstance(event, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError("no event of a timing campaign")
    # JSON mode is strict (no "3" for 3) and still takes arrays as tuples.
    read = _KINDS[kind].validate_json(line, strict=True)
    _check_names({name: value for name, value in event.items() if name != "event"}, asdict(read))
    found = {each["event"] for each in before}
    if missing := _NEEDED.get(kind, set()) - found:
        raise ValueError(f"no {min(missing)} before it")
    if kind == "campaign" and before:
        raise ValueError("a second campaign")
    if kind == "round":
        _check_round(event, before)
    return dict(event)


def _check_names(given: Any, known: Any) -> None:
    """Refuse names that no field has, at any depth: a field with a default hides that its name is misspelt."""
    if isinstance(given, dict):
        if unknown := set(given) - set(known):
            raise ValueError(f"no field {min(unknown)}")
        for name, value in given.items():
            _check_names(value, known[name])
    elif isinstance(given, list):
        for value, each in zip(given, known, strict=True):
            _check_names(value, each)


def _check_round(event: Event, before: list[Event]) -> None:
    planned = len(next(each for each in before if each["event"] == "plan")["calls"])
    first = next((each for each in before if each["event"] == "round"), event)
    if (
        event["kept"] != first["kept"]
        or not all(0 <= index < planned for index in event["kept"])
        or len(event["times_us"]) != len(event["kept"])
        or len(event["anchor_us"]) != len(first["anchor_us"])
    ):
        raise ValueError("a round of another plan")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a finite number")
