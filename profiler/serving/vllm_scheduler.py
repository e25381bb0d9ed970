"""vLLM's scheduler: mixed steps under a token budget, preemption of the newest request when the KV pool is full."""

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

    def _decodes(self, request: int) -> bool:
        return self._played.missing(request) == 1 and bool(self._played.produced[request])

    def _undisturbed_steps(self) -> int:
        """Steps in which all running requests decode, none ends and none can join; 0 when the next is not one."""
        played, server = self._played, self._server
        if not self._running or not all(self._decodes(request) for request in self._running):
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
        scheduled: dict[int, int] = {}
        preempted = False
        place = 0
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

    def _grown(self, scheduled: dict[int, int]) -> int:
        """Pages that the scheduled tokens will take."""
        held = self._played.held
        return sum(self._pages(int(held[r]) + n) - self._pages(int(held[r])) for r, n in scheduled.items())

    def _run(self, scheduled: dict[int, int]) -> None:
        played = self._played
        decoding = [request for request in scheduled if self._decodes(request)]
        read = int(played.held[decoding].sum())
        context = int(played.held[list(scheduled)].sum())
        others = int(played.held[self._running].sum()) - context
        prompt_tokens = sum(scheduled.values()) - len(decoding)
        for request, tokens in scheduled.items():
            played.held[request] += tokens
        if prompt_tokens:
            step_us = self._times.prefill_us(len(decoding), prompt_tokens, read)
            played.prefilled(step_us, prompt_tokens, others + context + sum(scheduled.values()))
        else:
            played.decoded(self._times.decode_us(len(decoding), read, 1), len(decoding), read)
        for request in scheduled:
            if not played.missing(request) and played.emit(request):
                self._running.remove(request)
