"""SGLang's scheduler: prompts first, decoding when none can be admitted, retraction when the KV pool is full."""

from dataclasses import dataclass

import numpy as np

from placer.profiler.serving.decoding import decode, undisturbed_steps
from placer.profiler.serving.new_token_ratio import NEW_TOKEN_RATIO
from placer.profiler.serving.page import pages, steps_that_fit
from placer.profiler.serving.played import Played
from placer.profiler.serving.server import Server
from placer.profiler.serving.step_time import StepTimes

LEAST_NEW_TOKEN_RATIO = NEW_TOKEN_RATIO * 0.14
RATIO_DECAY_STEPS = 600
"""Decode steps in which the share falls from the first to the least figure."""
RETRACT_DECODE_STEPS = 20
CLIP_NEW_TOKENS = 4096
"""Defaults of sglang-kt 0.7.2 (srt/environ.py, managers/schedule_policy.py, scheduler.py init_new_token_ratio)."""


@dataclass(frozen=True)
class _Admission:
    request: int
    tokens: int


class SglangScheduler:
    """Steps a server by the rules of sglang-kt 0.7.2 (managers/scheduler.py, schedule_policy.py), without priorities or
    mixed chunks."""

    def __init__(self, played: Played, server: Server, times: StepTimes) -> None:
        self._played = played
        self._server = server
        self._times = times
        self._running: list[int] = []
        self._chunked: int | None = None
        self._full = False
        self._ratio = NEW_TOKEN_RATIO
        self._capacity = server.kv_tokens // server.page_tokens

    def step(self) -> None:
        """One prefill step, or decode steps until something can change."""
        batch = self._prefill_batch()
        if batch:
            self._prefill(batch)
        elif self._running:
            self._decode()
        else:
            self._played.idle()

    def _holding(self) -> list[int]:
        return self._running if self._chunked is None else [*self._running, self._chunked]

    def _free_tokens(self) -> int:
        used = pages(self._played.held[self._holding()], self._server.page_tokens)
        return (self._capacity - used) * self._server.page_tokens

    def _paged(self, tokens: int) -> int:
        return -(-tokens // self._server.page_tokens) * self._server.page_tokens

    def _whole_pages(self, tokens: int) -> int:
        return tokens // self._server.page_tokens * self._server.page_tokens

    def _to_come(self, request: int) -> int:
        return min(int(self._played.output[request] - self._played.produced[request]), CLIP_NEW_TOKENS)

    def _charged(self, request: int) -> int:
        """A request that starts is charged its whole output, also when it had produced some before a retraction."""
        return min(int(self._played.output[request]), CLIP_NEW_TOKENS)

    def _prefill_batch(self) -> list[_Admission]:
        """Who is prefilled next, with how many tokens (get_new_batch_prefill and PrefillAdder)."""
        played, server = self._played, self._server
        if self._chunked is None and (self._full or not played.waiting):
            return []
        room = server.max_running - len(self._running)
        if room <= 0 and self._chunked is None:
            self._full = True
            return []
        to_come = played.output[self._running] - played.produced[self._running]
        promised = self._ratio * int(np.minimum(to_come, CLIP_NEW_TOKENS).sum())
        free = self._free_tokens()
        spoken_for = copied = 0
        chunk = server.chunk_tokens
        batch: list[_Admission] = []
        if self._chunked is not None:
            rest = played.missing(self._chunked)
            affordable = min(chunk, int(free - promised))
            taken = min(rest, affordable if affordable > 0 else chunk)
            batch.append(_Admission(self._chunked, taken))
            ends = taken == rest
            spoken_for += self._paged(taken) + (self._charged(self._chunked) if ends else 0)
            chunk -= self._paged(taken)
            if not ends:
                return batch
            self._chunked = None
        while played.waiting:
            if len(batch) >= room:
                self._full = True
                break
            request = played.waiting[0]
            found = played.found(request)
            asked = played.missing(request) - found
            # Alone it runs in any case: the runtime cuts its output to what the pool holds.
            alone = not batch and not self._running
            needed = found + asked + self._to_come(request) + server.page_tokens
            if not alone and needed >= free - promised - spoken_for:
                self._full = True
                break
            ends = self._paged(asked) <= chunk
            # Chunks end where pages do.
            taken = asked if ends else self._whole_pages(self._whole_pages(chunk) + found) - found
            if taken <= 0:
                break
            played.admit()
            batch.append(_Admission(request, taken))
            chunk -= self._paged(taken)
            copied += found
            spoken_for += found + self._paged(taken) + (self._charged(request) if ends else 0)
            filled = copied + sum(self._paged(part.tokens) for part in batch)
            if free - promised - spoken_for <= 0 or free <= filled:
                self._full = True
            if not ends:
                self._chunked = request
            if self._full or chunk <= 0:
                break
        return batch

    def _prefill(self, batch: list[_Admission]) -> None:
        played = self._played
        context = sum(int(played.held[part.request]) for part in batch)
        tokens = sum(part.tokens for part in batch)
        decoding = int(played.held[self._running].sum())
        for part in batch:
            played.held[part.request] += part.tokens
        step_us = self._times.prefill_us(0, tokens, 0)
        played.prefilled(step_us, tokens, decoding + context + tokens)
        started = [part.request for part in batch if part.request != self._chunked]
        going = played.emit(started)
        if len(going) < len(started):
            self._full = False
        self._running += going

    def _decode(self) -> None:
        """Decode until a request ends, one arrives that could start, or the pool is full."""
        played, server = self._played, self._server
        steps = undisturbed_steps(played, self._running, server)
        if not steps:
            self._retract()
            self._decode()
            return
        if played.waiting and not self._full:
            steps = 1
        going, steps = decode(played, self._running, steps, server, self._times)
        self._ratio = max(
            LEAST_NEW_TOKEN_RATIO,
            self._ratio - steps * (NEW_TOKEN_RATIO - LEAST_NEW_TOKEN_RATIO) / RATIO_DECAY_STEPS,
        )
        if len(going) < len(self._running):
            self._full = False
        self._running = going

    def _retract(self) -> None:
        """Drop the requests with the least output, longest prompts first, until one step fits (retract_decode)."""
        played, page = self._played, self._server.page_tokens
        keep = sorted(self._running, key=lambda r: (played.produced[r], -played.prompt[r]), reverse=True)
        while len(keep) > 1:
            request = keep.pop()
            played.retract(request)
            played.waiting.append(request)
            if steps_that_fit(played.held[keep], 1, self._capacity, page):
                break
        self._running = keep
        promised = int(played.output[keep].sum()) + 1
        expected = int(played.produced[keep].sum()) + RETRACT_DECODE_STEPS * len(keep)
        self._ratio = min(1.0, expected / promised)
        self._full = False
