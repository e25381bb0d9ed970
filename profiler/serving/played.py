"""Played requests: where each request stands while a server serves it, and when each of its events was."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from placer.profiler.serving.course import Course
from placer.profiler.serving.traffic import Traffic


class Played:
    """The state of N requests while they are served, and the times of what happened to them.

    Attributes
    ----------
    now_us
        The clock.
    arrival_us, admitted_us, first_token_us, finish_us
        float64 [N]; NaN before it happened. ``admitted_us`` is of the first admission.
    prompt, output
        int64 [N], tokens asked for.
    cached
        int64 [N], prompt tokens that the prefix cache holds. A request that starts takes a copy of its own of their
        KV, as if nobody shared it; one that was retracted computes them again, since a full pool has dropped
        what nobody held.
    held
        int64 [N], tokens whose KV is in the pool.
    produced
        int64 [N], output tokens so far.
    retractions
        int64 [N], how often a request lost its KV.
    waiting
        Requests that arrived and hold no KV, in the order in which they are served.
    unfinished
        Requests that are not finished.
    decode_steps, prefill_steps
        Steps that only decode, and steps with prompt tokens.
    prefilled_tokens
        Prompt tokens computed, those computed again included.
    decode_us, prefill_us
        Time in either kind of step.
    kv_token_us, peak_kv_tokens
        KV tokens held, integrated over time; and the most at any moment.
    output_tokens
        Tokens put out, of all requests.
    """

    def __init__(self, traffic: Traffic) -> None:
        N = traffic.requests
        self.now_us = 0.0
        self.prompt: NDArray[np.int64] = traffic.prompt_tokens
        self.output: NDArray[np.int64] = traffic.output_tokens
        self.cached: NDArray[np.int64] = (
            np.zeros(N, dtype=np.int64) if traffic.cached_tokens is None else traffic.cached_tokens
        )
        self.held = np.zeros(N, dtype=np.int64)
        self.produced = np.zeros(N, dtype=np.int64)
        self.retractions = np.zeros(N, dtype=np.int64)
        self.admitted_us, self.first_token_us, self.finish_us = np.full((3, N), np.nan)
        self.waiting: deque[int] = deque()
        self.unfinished = N
        self.decode_steps = self.prefill_steps = self.prefilled_tokens = 0
        self.decode_us = self.prefill_us = self.kv_token_us = 0.0
        self.peak_kv_tokens = self.output_tokens = 0
        self._marks = [(0.0, 0.0, 0)]
        self._sent = self._queued = 0
        self._client_us = traffic.client_us
        self._closed = traffic.arrival_us is None
        self.arrival_us = np.full(N, np.nan) if traffic.arrival_us is None else traffic.arrival_us
        if self._closed:
            for _ in range(min(traffic.clients, N)):
                self._send()

    @property
    def next_arrival_us(self) -> float:
        """When the scheduler next knows of a request by itself; infinite when it will not."""
        if self._queued == (self._sent if self._closed else self.arrival_us.size):
            return float("inf")
        return float(self.arrival_us[self._queued]) + self._client_us

    def release(self) -> None:
        """Queue what has arrived by now."""
        while self.next_arrival_us <= self.now_us:
            self.waiting.append(self._queued)
            self._queued += 1

    def missing(self, request: int) -> int:
        """Known tokens of ``request`` whose KV is not held: 1 when it decodes, more when it is prefilled."""
        return int(self.prompt[request] + self.produced[request] - self.held[request])

    def idle(self) -> None:
        """Nothing runs: the clock goes on to the next arrival."""
        self.now_us = self.next_arrival_us

    def found(self, request: int) -> int:
        """Tokens of a waiting ``request`` that the prefix cache holds."""
        return 0 if self.retractions[request] else int(self.cached[request])

    def admit(self) -> int:
        """The head of the queue starts with what the prefix cache holds of it; returns it."""
        request = self.waiting.popleft()
        self.held[request] = self.found(request)
        if np.isnan(self.admitted_us[request]):
            self.admitted_us[request] = self.now_us
        return request

    def decoded(self, step_us: NDArray[np.float64], requests: int, kv_tokens: int) -> None:
        """Steps of ``requests`` decoding requests took ``step_us``; ``kv_tokens`` were held before the first."""
        steps = step_us.size
        held = kv_tokens + requests * np.arange(1, steps + 1)
        spent = float(step_us.sum())
        self.now_us += spent
        self.decode_us += spent
        self.decode_steps += steps
        self.kv_token_us += float(held @ step_us)
        self.peak_kv_tokens = max(self.peak_kv_tokens, int(held[-1]))

    def prefilled(self, step_us: float, tokens: int, kv_tokens: int) -> None:
        """A step with ``tokens`` prompt tokens took ``step_us``; ``kv_tokens`` are held with those."""
        self.now_us += step_us
        self.prefill_us += step_us
        self.prefill_steps += 1
        self.prefilled_tokens += tokens
        self.kv_token_us += kv_tokens * step_us
        self.peak_kv_tokens = max(self.peak_kv_tokens, kv_tokens)

    def emit(self, requests: list[int], tokens: int = 1) -> list[int]:
        """Each of ``requests`` has got ``tokens`` output tokens by now; those that are not finished with them."""
        each = np.array(requests, dtype=np.int64)
        self.first_token_us[each[self.produced[each] == 0]] = self.now_us
        self.produced[each] += tokens
        self.output_tokens += tokens * each.size
        ended = self.produced[each] >= self.output[each]
        if not ended.any():
            return requests
        finished = each[ended]
        self.finish_us[finished] = self.now_us
        self.held[finished] = 0
        self.unfinished -= finished.size
        if self._closed:
            for _ in range(min(finished.size, self.arrival_us.size - self._sent)):
                self._send()
        return [int(request) for request in each[~ended]]

    def mark(self) -> None:
        """Note what has been held and put out by now."""
        self._marks.append((self.now_us, self.kv_token_us, self.output_tokens))

    def course(self) -> Course:
        """What was held and put out by every mark."""
        return Course(*np.array(self._marks, dtype=np.float64).T)

    def retract(self, request: int) -> None:
        """``request`` loses its KV; its output stays, and is prefilled with its prompt when it is admitted again."""
        self.retractions[request] += 1
        self.held[request] = 0

    def _send(self) -> None:
        self.arrival_us[self._sent] = self.now_us
        self._sent += 1
        self.release()
