"""Decode steps in a row, as far as nothing can change between them: what every scheduler does with them."""

import numpy as np

from placer.profiler.serving.page import steps_that_fit
from placer.profiler.serving.played import Played
from placer.profiler.serving.server import Server
from placer.profiler.serving.step_time import StepTimes


def undisturbed_steps(played: Played, running: list[int], server: Server) -> int:
    """Steps until the first of the ``running`` requests ends, or until the KV pool is full; 0 when it is."""
    left = played.output[running] - played.produced[running]
    capacity_pages = server.kv_tokens // server.page_tokens
    return steps_that_fit(played.held[running], int(left.min()), capacity_pages, server.page_tokens)


def decode(
    played: Played, running: list[int], steps: int, server: Server, times: StepTimes
) -> tuple[list[int], int]:
    """Decode ``steps`` times, fewer if a request arrives that could start; who runs on, and the steps taken."""
    requests, before = len(running), int(played.held[running].sum())
    step_us = times.decode_us(requests, before, steps)
    if requests < server.max_running:
        ends = played.now_us + np.cumsum(step_us)
        steps = min(steps, int(np.searchsorted(ends, played.next_arrival_us)) + 1)
        step_us = step_us[:steps]
    played.decoded(step_us, requests, before)
    played.held[running] += steps
    return played.emit(running, steps), steps
