"""A benchmark's requests played in a closed loop: which steps the server runs, and which of them each request spans."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RequestPlay:
    """N requests in M entries of equal steps, in the order in which the server runs them.

    In a closed loop the next request is sent when another one ends, so this order does not depend on how long
    any step takes.

    Attributes
    ----------
    prefill
        bool [M], prefill chunks; the others are decode steps.
    size
        int [M], tokens of a chunk, requests of a decode step.
    count
        int [M], how many such steps follow each other.
    sent, first, end
        int [N], entries that have run when a request is sent, has its first token, has its last.
    output_tokens
        int [N]
    """

    prefill: NDArray[np.bool_]
    size: Ints
    count: Ints
    sent: Ints
    first: Ints
    end: Ints
    output_tokens: Ints

    def figures(
        self, decode_us: Callable[[Ints], Floats], prefill_us: Callable[[Ints], Floats]
    ) -> "PlayFigures":
        """What a client measures where steps of a size take ``decode_us`` and ``prefill_us`` microseconds."""
        step_us = np.empty(len(self.size))
        step_us[self.prefill] = prefill_us(self.size[self.prefill])
        step_us[~self.prefill] = decode_us(self.size[~self.prefill])
        clock_us = np.concatenate([[0.0], np.cumsum(step_us * self.count)])
        sent, first, end = clock_us[self.sent], clock_us[self.first], clock_us[self.end]
        several = self.output_tokens > 1
        tpot_us = (end - first)[several] / (self.output_tokens[several] - 1)
        return PlayFigures(
            mean_ttft_ms=float((first - sent).mean()) / 1e3,
            mean_tpot_ms=float(tpot_us.mean()) / 1e3,
            output_tokens_per_s=float(self.output_tokens.sum()) / float(clock_us[-1]) * 1e6,
        )


@dataclass(frozen=True)
class PlayFigures:
    """What a benchmark client would state."""

    mean_ttft_ms: float
    mean_tpot_ms: float
    output_tokens_per_s: float


def play_requests(
    *,
    input_tokens: tuple[int, ...],
    output_tokens: tuple[int, ...],
    clients: int,
    max_running: int,
    chunk_tokens: int,
) -> RequestPlay:
    """Play requests against a server that prefills waiting requests first, as SGLang does by default.

    ``clients`` send at once; whoever is answered sends the next request. While a slot is free and a request
    waits, the server fills chunks of at most ``chunk_tokens`` with prompts, the last one cut where it does
    not fit; a prompt's end yields its first token. Otherwise a decode step gives every running request one
    token. All lengths are 1 or more.
    """
    N = len(input_tokens)
    slots = min(clients, max_running)
    prefill: list[bool] = []
    size: list[int] = []
    count: list[int] = []
    sent, first, end = (np.zeros(N, dtype=np.int64) for _ in range(3))
    prompt_left = list(input_tokens)
    # Running requests by the decode step that yields their last token, counted from the start.
    running: list[tuple[int, int]] = []
    decoded = 0
    unsent = deque(range(N))
    waiting: deque[int] = deque()

    def send(requests: int) -> None:
        for _ in range(min(requests, len(unsent))):
            request = unsent.popleft()
            sent[request] = len(size)
            waiting.append(request)

    def finish(request: int) -> None:
        end[request] = len(size)
        send(1)

    send(clients)
    while waiting or running:
        free = slots - len(running)
        if waiting and free:
            room = chunk_tokens
            done: list[int] = []
            while waiting and room and len(done) < free:
                request = waiting[0]
                taken = min(room, prompt_left[request])
                prompt_left[request] -= taken
                room -= taken
                if not prompt_left[request]:
                    done.append(waiting.popleft())
            prefill.append(True)
            size.append(chunk_tokens - room)
            count.append(1)
            for request in done:
                first[request] = len(size)
                if output_tokens[request] > 1:
                    heappush(running, (decoded + output_tokens[request] - 1, request))
                else:
                    finish(request)
        else:
            # Nothing changes until the next request ends.
            last = running[0][0]
            prefill.append(False)
            size.append(len(running))
            count.append(last - decoded)
            decoded = last
            while running and running[0][0] == decoded:
                finish(heappop(running)[1])
    return RequestPlay(
        prefill=np.array(prefill),
        size=np.array(size, dtype=np.int64),
        count=np.array(count, dtype=np.int64),
        sent=sent,
        first=first,
        end=end,
        output_tokens=np.array(output_tokens, dtype=np.int64),
    )
