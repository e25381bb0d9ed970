"""Requests behind the tokens of recorded forward passes, rebuilt from positions alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.trace import Phase
from placer.units import counted


@dataclass(frozen=True)
class ForwardPass:
    """One recorded forward pass.

    Attributes
    ----------
    positions
        int64 [tokens], position of each token in its request.
    prompt_tokens
        int64 [segments], lengths of the batch's prompt segments; None for a decode pass.
    mixed
        Whether segments of one token may be decode tokens.
    """

    positions: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64] | None
    mixed: bool = False


@dataclass(frozen=True)
class TrackedRequests:
    """Requests of all passes' tokens, in the order the tokens were recorded.

    Attributes
    ----------
    order
        int64 [T], token indices sorted by request, then by position.
    request, position, phase
        int32, int32 and uint8 [T].
    notes
        What had to be assumed.
    """

    order: NDArray[np.int64]
    request: NDArray[np.int32]
    position: NDArray[np.int32]
    phase: NDArray[np.uint8]
    notes: tuple[str, ...]


@dataclass
class _Live:
    """A request that may go on, and the position its next token will have."""

    request: int
    next_position: int


class RequestTracker:
    """Follows running requests through passes, as SGLang's scheduler orders them.

    A prompt segment from position 0 is a new request; one from a later position continues the latest
    prefilled request that ends there, else it is a new request behind a cached prefix. A decode pass holds
    one token of every running request, in the order of the last decode batch followed by what was prefilled
    since; finished requests are missing. Rows are therefore matched from the end, by position. Requests that
    stand at the same position can be confused: the result is a best effort.
    """

    def __init__(self) -> None:
        self._passes: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]] = []
        self._running: list[_Live] = []
        self._prefilled: list[_Live] = []
        self._requests = 0
        self._joined_late = 0

    def add(self, recorded: ForwardPass, where: str) -> None:
        """Assign the tokens of the next pass.

        Raises
        ------
        BadInputError
            When segment lengths and tokens differ, or a segment's positions do not follow each other.
        """
        positions = recorded.positions
        if np.any(positions < 0):
            raise BadInputError(f"{where}: a position is negative", "use the recorder's own file")
        request = np.empty(positions.size, dtype=np.int64)
        phase = np.full(positions.size, Phase.DECODE, dtype=np.uint8)
        decoding = np.ones(positions.size, dtype=bool)
        if recorded.prompt_tokens is not None:
            standing = {live.next_position for live in self._running} if recorded.mixed else set()
            for start, stop in _segments(recorded.prompt_tokens, positions, where):
                first = int(positions[start])
                if stop - start == 1 and first in standing:
                    continue
                request[start:stop] = self._prefill(first, stop - start)
                phase[start:stop] = Phase.PREFILL
                decoding[start:stop] = False
        if decoding.any():
            request[decoding] = self._decode(positions[decoding].tolist())
        self._passes.append((request, positions, phase))

    def _prefill(self, first: int, tokens: int) -> int:
        """Request of a prompt segment."""
        live = None
        if first > 0:
            live = next((one for one in reversed(self._prefilled) if one.next_position == first), None)
        if live is None:
            live = self._new(first)
        else:
            self._prefilled.remove(live)
        live.next_position = first + tokens
        self._prefilled.append(live)
        return live.request

    def _decode(self, positions: list[int]) -> list[int]:
        """Requests of a pass's decode rows."""
        candidates: list[_Live | None] = [*self._running, *self._prefilled]
        fresh = {live.request for live in self._prefilled}
        matched: list[_Live] = []
        end = len(candidates)
        for position in reversed(positions):
            at = _last_at(candidates, position, end)
            if at is None:
                at = _last_at(candidates, position, len(candidates))
            else:
                end = at
            if at is None:
                live = self._new(position)
            else:
                taken = candidates[at]
                assert taken is not None
                live = taken
                candidates[at] = None
            live.next_position = position + 1
            matched.append(live)
        matched.reverse()
        self._running = matched
        # A prompt that is not decoded yet may be unfinished: its next chunk continues it.
        self._prefilled = [live for live in candidates if live is not None and live.request in fresh]
        return [live.request for live in matched]

    def _new(self, first: int) -> _Live:
        self._requests += 1
        self._joined_late += first > 0
        return _Live(self._requests - 1, first)

    def requests(self) -> TrackedRequests:
        """What was assigned so far; at least one pass must have been added."""
        request, position, phase = (np.concatenate(part) for part in zip(*self._passes, strict=True))
        notes = [
            "requests were rebuilt from token positions (best effort: the recorder keeps no request ids)"
        ]
        if self._joined_late:
            notes.append(
                f"{counted(self._joined_late, 'request')} from after position 0 on (cached prefix, or recorded midway)"
            )
        return TrackedRequests(
            order=np.lexsort((position, request)),
            request=request.astype(np.int32),
            position=position.astype(np.int32),
            phase=phase,
            notes=tuple(notes),
        )


def _segments(lengths: NDArray[np.int64], positions: NDArray[np.int64], where: str) -> list[tuple[int, int]]:
    """Start and stop of each prompt segment in its pass."""
    if np.any(lengths < 1) or int(lengths.sum()) != positions.size:
        raise BadInputError(
            f"{where}: extend_seq_lens sums to {int(lengths.sum())} for {positions.size} tokens",
            "use the recorder's own file",
        )
    stops = np.cumsum(lengths)
    follows = np.diff(positions) == 1
    follows[stops[:-1] - 1] = True
    if not follows.all():
        raise BadInputError(
            f"{where}: positions of a prompt do not follow each other", "use the recorder's own file"
        )
    return list(zip((stops - lengths).tolist(), stops.tolist(), strict=True))


def _last_at(candidates: list[_Live | None], position: int, end: int) -> int | None:
    """Index below ``end`` of the last candidate whose next token has ``position``."""
    for at in range(end - 1, -1, -1):
        live = candidates[at]
        if live is not None and live.next_position == position:
            return at
    return None
