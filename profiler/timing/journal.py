"""Raw samples kept on disk: the events of one campaign, a line of JSON each, its spec first."""

import json
from pathlib import Path
from typing import Any

from placer.errors import BadInputError
from placer.output import write_text
from placer.profiler.timing.kept_event import kept_event
from placer.profiler.timing.processor_time import ProcessorTime
from placer.profiler.timing.rounds import Tally
from placer.profiler.timing.samples import Event
from placer.profiler.timing.spec import CampaignSpec

SCHEMA = "placer.samples/1"
_MAY_DIFFER = ("max_seconds",)
"""Fields of a spec that a campaign may change when it goes on."""
_SAME_RUN = {"machine": ("cpu", "isa"), "loaded": ("method", "variant", "version")}
"""What must be the same when a campaign goes on, by event."""


class Journal:
    """The events of one campaign: those of earlier runs, and a file that new ones are appended to.

    Attributes
    ----------
    path
        The file: ``<device>-<backend>-<threads>x<subpools>.jsonl``, with ``-calls`` for a few calls alone.
    events
        What was read back and appended, in order.
    """

    def __init__(self, folder: Path, spec: CampaignSpec) -> None:
        """Open the journal of ``spec`` in ``folder``, which is made if it is missing.

        Raises
        ------
        BadInputError
            When the file is of another campaign, is damaged, or cannot be written.
        """
        part = "-calls" if spec.only_extra else ""
        name = f"{spec.device}-{spec.backend}-{spec.threads}x{spec.subpools}{part}.jsonl"
        self.path = folder / name
        wanted = _head(spec)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.events = read_events(self.path) if self.path.exists() else []
            if self.events:
                self._check_head(wanted)
                # A line that was being written when an earlier run ended is dropped.
                whole = "".join(_line(event) for event in self.events)
                write_text(self.path, whole, "--keep-samples")
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise BadInputError(
                f"cannot keep samples in {self.path}: {error.strerror or error}", "choose another folder"
            ) from None
        if not self.events:
            self.append(wanted)

    @property
    def finished(self) -> bool:
        """Whether an earlier run came to its end, so that nothing is left to time."""
        return bool(self.events[-1]["event"] == "done")

    @property
    def reread_note(self) -> str:
        """What to say of samples that are read back whole."""
        return f"nothing was timed now: all samples, and the seconds they took, are of an earlier run in {self.path}"

    @property
    def rounds(self) -> int:
        """Rounds so far."""
        return sum(event["event"] == "round" for event in self.events)

    def append(self, event: Event) -> None:
        """Write one event at once; progress and failures are passed over.

        Raises
        ------
        BadInputError
            When the event shows another machine or kernel than the earlier runs had.
        """
        if event["event"] in ("progress", "error"):
            return
        for name in _SAME_RUN.get(event["event"], ()):
            earlier = next((each for each in self.events if each["event"] == event["event"]), event)
            if earlier[name] != event[name]:
                raise self._another(name, earlier[name], event[name])
        self.events.append(event)
        self._file.write(_line(event))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _check_head(self, wanted: Event) -> None:
        head = self.events[0]
        if head.get("event") != "campaign" or head.get("schema") != SCHEMA:
            raise BadInputError(
                f"{self.path} holds no samples of a timing campaign",
                "choose another folder, or remove the file",
            )
        for name, value in wanted["spec"].items():
            if head["spec"].get(name) != value:
                raise self._another(name, head["spec"].get(name), value)

    def _another(self, name: str, earlier: Any, now: Any) -> BadInputError:
        return BadInputError(
            f"{self.path} holds samples of another campaign: {name} was {_short(earlier)}, is now {_short(now)}",
            "keep these samples in another folder, or remove the file",
        )


def read_events(path: Path) -> list[Event]:
    """The whole lines of a journal; a last line without an end is left out.

    Raises
    ------
    BadInputError
        When a line is no event, or a round does not belong to the plan before it.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    events: list[Event] = []
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            break
        try:
            events.append(kept_event(line, events))
        except ValueError:
            raise BadInputError(
                f"{path}, line {number}: not an event of a timing campaign", "remove the file and time again"
            ) from None
    return events


def earlier_rounds(events: list[Event]) -> Tally | None:
    """What the rounds among ``events`` have produced; None where there are none."""
    rounds = [event for event in events if event["event"] == "round"]
    if not rounds:
        return None
    return Tally(
        kept=tuple(rounds[0]["kept"]),
        times_us=[event["times_us"] for event in rounds],
        anchor_us=[event["anchor_us"] for event in rounds],
        used=[ProcessorTime(**event["used"]) for event in rounds],
    )


def _head(spec: CampaignSpec) -> Event:
    described = {name: value for name, value in json.loads(spec.to_json()).items() if name not in _MAY_DIFFER}
    return {"event": "campaign", "schema": SCHEMA, "spec": described}


def _line(event: Event) -> str:
    return json.dumps(event) + "\n"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
