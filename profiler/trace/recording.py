"""A trace while it is being recorded: whole requests, saved as they come, and taken up again after a stop."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.output import checked_output
from placer.profiler.trace.file import read_trace, write_trace
from placer.profiler.trace.integrity import check_trace
from placer.profiler.trace.prompt import Prompt
from placer.profiler.trace.trace import Phase, TokenTrace, TraceHeader

_SAVE_EVERY_S = 30.0
_SAVE_SHARE = 0.05
"""Share of the time that saving may take, however large the trace grows."""
_SHOWN_REASONS = 3


@dataclass(frozen=True)
class RecordedRequest:
    """Routing of one request's tokens.

    Attributes
    ----------
    ids
        uint16 [T, L, K] over the MoE layers.
    position
        int32 [T], rising.
    prompt_rows
        How many leading tokens are the prompt's.
    """

    ids: NDArray[np.uint16]
    position: NDArray[np.int32]
    prompt_rows: int

    @property
    def uncaptured(self) -> int:
        """Tokens up to the last one that the runtime did not capture."""
        return int(self.position[-1]) + 1 - len(self.position)


class Recording:
    """Requests recorded so far, by the index of their prompt.

    Every request is whole: one that was cut short by an interruption is not in it, and is recorded again.
    """

    def __init__(self, header: TraceHeader, prompts: Sequence[Prompt], path: Path) -> None:
        domains = tuple(dict.fromkeys(prompt.domain for prompt in prompts))
        if len(domains) > np.iinfo(np.int16).max:
            raise BadInputError(f"{len(domains)} domains", "group prompts into fewer domains")
        self.header = replace(header, domains=domains)
        self.path = path
        self._domain = [domains.index(prompt.domain) for prompt in prompts]
        self._requests: dict[int, RecordedRequest] = {}
        self._failures: dict[str, int] = {}
        self._saved = 0
        self._next_save = time.monotonic() + _SAVE_EVERY_S

    def __len__(self) -> int:
        """Number of recorded requests."""
        return len(self._requests)

    @property
    def missing(self) -> list[int]:
        """Indices of the prompts that are yet to be recorded."""
        return [at for at in range(len(self._domain)) if at not in self._requests]

    @property
    def failures(self) -> dict[str, int]:
        """How many requests failed, by reason."""
        return dict(self._failures)

    def resume(self) -> None:
        """Take over the requests that an earlier run with the same prompts and settings left in `path`.

        Raises
        ------
        BadInputError
            When the file is no trace, or is of another model, other prompts or other settings.
        """
        if not self.path.exists():
            return
        trace = read_trace(self.path)
        ours = replace(self.header, notes=())
        if not isinstance(trace, TokenTrace) or replace(trace.header, notes=()) != ours:
            raise BadInputError(
                f"{self.path} is another recording: {trace.header.model}, {trace.header.source}",
                f"this one is {ours.model}, {ours.source}: choose another file with -o",
            )
        starts = np.flatnonzero(np.diff(trace.request, prepend=trace.request[0] - np.int64(1)))
        for start, end in zip(starts, [*starts[1:], trace.tokens], strict=True):
            index = int(trace.request[start])
            if not 0 <= index < len(self._domain):
                raise BadInputError(
                    f"{self.path} holds request {index}, there are {len(self._domain)} prompts",
                    "choose another file with -o",
                )
            self._requests[index] = RecordedRequest(
                ids=trace.topk_ids[start:end],
                position=trace.position[start:end],
                prompt_rows=int((trace.phase[start:end] == Phase.PREFILL).sum()),
            )
        self._saved = len(self)

    def add(self, index: int, request: RecordedRequest) -> None:
        """Keep the routing of prompt ``index``, and save when it is time to.

        Raises
        ------
        BadInputError
            When it is unsound (see `check_trace`): a trace holding it could not be written later.
        """
        check_trace(self._joined([index], [request], ()), f"the routing of request {index}")
        self._requests[index] = request
        if time.monotonic() >= self._next_save:
            self.save()

    def fail(self, reason: str) -> None:
        """Count a request that brought no routing."""
        self._failures[reason] = self._failures.get(reason, 0) + 1

    def save(self) -> None:
        """Write what is recorded to `path`, whole or not at all; nothing when nothing new is there."""
        if len(self) == self._saved:
            return
        started = time.monotonic()
        write_trace(self.trace(), self.path)
        self._saved = len(self)
        took = time.monotonic() - started
        self._next_save = time.monotonic() + max(_SAVE_EVERY_S, took / _SAVE_SHARE)

    def summary(self) -> str:
        """One line: what is recorded, and where."""
        tokens = sum(len(request.ids) for request in self._requests.values())
        if not tokens:
            return "no request was finished, so nothing is kept"
        return f"{self.path}: {len(self):,} of {len(self._domain):,} requests, {tokens:,} tokens"

    def trace(self) -> TokenTrace:
        """The recorded requests in the order of their prompts.

        Raises
        ------
        BadInputError
            When there are none.
        """
        if not self._requests:
            raise BadInputError("no request was recorded", "let at least one finish")
        indices = sorted(self._requests)
        return self._joined(indices, [self._requests[index] for index in indices], self._notes())

    def _joined(
        self, indices: Sequence[int], requests: Sequence[RecordedRequest], notes: Sequence[str]
    ) -> TokenTrace:
        lengths = [len(request.ids) for request in requests]
        phases = [
            np.where(np.arange(len(one.ids)) < one.prompt_rows, Phase.PREFILL, Phase.DECODE)
            for one in requests
        ]
        return TokenTrace(
            header=replace(self.header, notes=(*self.header.notes, *notes)),
            topk_ids=np.concatenate([request.ids for request in requests]),
            request=np.repeat(np.asarray(indices, dtype=np.int32), lengths),
            position=np.concatenate([request.position for request in requests]),
            phase=np.concatenate(phases).astype(np.uint8),
            domain=np.repeat(np.asarray([self._domain[at] for at in indices], dtype=np.int16), lengths),
        )

    def _notes(self) -> list[str]:
        prompts = len(self._domain)
        notes = []
        uncaptured = sum(request.uncaptured for request in self._requests.values())
        if uncaptured:
            notes.append(f"{uncaptured} tokens before others of their request have no routing")
        failed = sum(self._failures.values())
        if failed:
            most = sorted(self._failures.items(), key=lambda one: (-one[1], one[0]))[:_SHOWN_REASONS]
            reasons = "; ".join(f"{count} × {reason}" for reason, count in most)
            notes.append(f"{failed} of {prompts} requests failed: {reasons}")
        left = prompts - len(self) - failed
        if left:
            notes.append(f"stopped early: {len(self)} of {prompts} requests are recorded")
        return notes


class RecordingInterrupted(KeyboardInterrupt):
    """Ctrl-C while recording; what was recorded is saved."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording.summary() + ("; continue with --resume" if len(recording) else ""))


def open_recording(header: TraceHeader, prompts: Sequence[Prompt], path: Path, *, resume: bool) -> Recording:
    """A recording into ``path``: a new one, or with ``resume`` the one that was begun there.

    Raises
    ------
    BadInputError
        When ``path`` cannot be written; when it is there already without ``resume``, or holds another
        recording with it.
    """
    checked_output(path)
    if path.exists() and not resume:
        # A recording took minutes or hours: unlike other outputs it is never replaced in passing.
        raise BadInputError(
            f"{path} is there already", "continue it with --resume, choose another -o, or remove it first"
        )
    recording = Recording(header, prompts, path)
    if resume:
        recording.resume()
    return recording
