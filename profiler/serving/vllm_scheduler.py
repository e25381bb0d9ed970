"""vLLM's scheduler: mixed steps under a token budget, preemption of the newest request when the KV pool is full."""

import numpy as np

from placer.profiler.serving.decoding import decode, undisturbed_steps
from placer.profiler.serving.page import pages
from placer.profiler.serving.played import Played
from placer.profiler.serving.server import Server
from placer.profiler.serving.step_time import StepTimes


class VllmScheduler:
    """Steps a server by the rules of vLLM 0.32 (v1/core/sched/scheduler.py, first come first served), without
    speculation."""

    def __init__(self, played: Played, server: Server, times: StepTimes) -> None:
        self._played = played
        self._server = server
        self._times = times
        self._running: list[int] = []
        self._capacity = server.kv_tokens // server.page_tokens

    def step(self) -> None:
        """One mixed step, or decode steps until something can change."""
        steps = self._undisturbed_steps()
        if steps:
            self._running, _ = decode(self._played, self._running, steps, self._server, self._times)
            return
        scheduled = self._schedule()
        if scheduled:
            self._run(scheduled)
        else:
            self._played.idle()

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self._server.page_tokens)

    def _free_pages(self) -> int:
        return self._capacity - pages(self._played.held[self._running], self._server.page_tokens)

    def _fits(self, request: int, tokens: int, free_pages: int) -> bool:
        held = int(self._played.held[request])
        return self._pages(held + tokens) - self._pages(held) <= free_pages

    def _all_decode(self) -> bool:
        played, running = self._played, self._running
        produced = played.produced[running]
        return bool(((produced > 0) & (played.prompt[running] + produced - played.held[running] == 1)).all())

    def _undisturbed_steps(self) -> int:
        """Steps in which all running requests decode, none ends and none can join; 0 when the next is not one."""
        played, server = self._played, self._server
        if not self._running or not self._all_decode():
            return 0
        if played.waiting and len(self._running) < server.max_running:
            head = played.waiting[0]
            budget = server.chunk_tokens - len(self._running)
            if budget > 0 and self._fits(head, played.missing(head), self._free_pages()):
                return 0
        return undisturbed_steps(played, self._running, server)

    def _schedule(self) -> dict[int, int]:
        """Tokens of the next step by request: running ones first, then waiting ones while budget and pages last."""
        played = self._played
        budget, free = self._server.chunk_tokens, self._free_pages()
        scheduled = self._all_running(budget, free)
        if scheduled:
            budget -= sum(scheduled.values())
            free -= self._grown(scheduled)
        preempted = False
        place = len(scheduled)
        while place < len(self._running) and budget > 0:
            request = self._running[place]
            tokens = min(played.missing(request), budget)
            while not self._fits(request, tokens, free):
                newest = self._running.pop()
                played.retract(newest)
                played.waiting.appendleft(newest)
                preempted = True
                free = self._free_pages() - self._grown(scheduled)
                if newest == request:
                    return scheduled
            scheduled[request] = tokens
            budget -= tokens
            free = self._free_pages() - self._grown(scheduled)
            place += 1
        while (
            played.waiting and budget > 0 and not preempted and len(self._running) < self._server.max_running
        ):
            request = played.waiting[0]
            # Admission asks for pages of the whole prompt (scheduler_reserve_full_isl), though chunks take them.
            if not self._fits(request, played.missing(request), free):
                break
            found = played.found(request)
            tokens = min(played.missing(request) - found, budget)
            self._running.append(played.admit())
            scheduled[request] = tokens
            budget -= tokens
            free -= self._pages(found + tokens)
        return scheduled

    def _all_running(self, budget: int, free_pages: int) -> dict[int, int]:
        """What every running request lacks, where tokens and pages suffice for all of it; else nothing."""
        played, page = self._played, self._server.page_tokens
        held = played.held[self._running]
        missing = played.prompt[self._running] + played.produced[self._running] - held
        if missing.sum() > budget or pages(held + missing, page) - pages(held, page) > free_pages:
            return {}
        return dict(zip(self._running, missing.tolist(), strict=True))

    def _grown(self, scheduled: dict[int, int]) -> int:
        """Pages that the scheduled tokens will take."""
        page = self._server.page_tokens
        held = self._played.held[list(scheduled)]
        tokens = np.array(list(scheduled.values()), dtype=np.int64)
        return pages(held + tokens, page) - pages(held, page)

    def _run(self, scheduled: dict[int, int]) -> None:
        played = self._played
        requests = np.array(list(scheduled), dtype=np.int64)
        tokens = np.array(list(scheduled.values()), dtype=np.int64)
        missing = played.prompt[requests] + played.produced[requests] - played.held[requests]
        decodes = (missing == 1) & (played.produced[requests] > 0)
        decoding = int(decodes.sum())
        read = int(played.held[requests[decodes]].sum())
        held = int(played.held[self._running].sum())
        played.held[requests] += tokens
        prompt_tokens = int(tokens.sum()) - decoding
        if prompt_tokens:
            step_us = self._times.prefill_us(decoding, prompt_tokens, read)
            played.prefilled(step_us, prompt_tokens, held + int(tokens.sum()))
        else:
            played.decoded(self._times.decode_us(decoding, read, 1), decoding, read)
        given = requests[missing == tokens].tolist()
        ended = set(given) - set(played.emit(given))
        if ended:
            self._running = [request for request in self._running if request not in ended]
