"""Serving prediction: a closed-loop simulation of continuous batching over sampled step times."""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ServingEstimate:
    """What clients see, over the requests counted (warm-up left out).

    Attributes
    ----------
    tpot_ms_mean, tpot_ms_p95
        Per request: time after its first token over the tokens after it, prefill stalls included.
    ttft_ms_mean, ttft_ms_p95
        From sending a request to its first token, queueing included.
    output_tokens_per_s
        Tokens of all clients per second.
    requests
        Requests counted.
    """

    tpot_ms_mean: float
    tpot_ms_p95: float
    ttft_ms_mean: float
    ttft_ms_p95: float
    output_tokens_per_s: float
    requests: int


def simulate_closed_loop(
    *,
    clients: int,
    max_running: int,
    prompt_tokens: int,
    output_tokens: int,
    chunk_tokens: int,
    decode_step_us: NDArray[np.float64],
    prefill_chunk_us: NDArray[np.float64],
    seed: int,
) -> ServingEstimate:
    """Play clients against a server that prefills waiting requests first, as SGLang does by default.

    A waiting request is admitted when a slot is free: its prompt runs in ceil(P / C) chunks during which
    decoding stands still, the last chunk yields its first token. Otherwise one decode step gives every
    running request one token. Each step's time is drawn from ``decode_step_us`` or ``prefill_chunk_us``
    (float [S], microseconds). Clients start staggered, so the run begins near its steady state.
    """
    random = np.random.default_rng(seed)
    slots = min(clients, max_running)
    chunks = -(-prompt_tokens // chunk_tokens)
    remaining = random.integers(1, output_tokens, size=slots)
    first_token = np.zeros(slots)
    counted = np.zeros(slots, dtype=bool)
    running = np.ones(slots, dtype=bool)
    waiting: deque[float] = deque(0.0 for _ in range(clients - slots))
    # Requests already under way when the run starts are not counted; nor is the first of each client.
    warm = clients
    goal = warm + max(64, 4 * clients)
    now = start = 0.0
    sent = tokens = 0
    tpot: list[float] = []
    ttft: list[float] = []
    while len(tpot) < goal - warm:
        free = np.flatnonzero(~running)
        if waiting and free.size:
            slot = int(free[0])
            arrival = waiting.popleft()
            now += float(random.choice(prefill_chunk_us, size=chunks).sum())
            running[slot] = True
            first_token[slot] = now
            remaining[slot] = output_tokens - 1
            sent += 1
            counted[slot] = sent > warm
            if sent == warm:
                start, tokens = now, 0
            if counted[slot]:
                ttft.append((now - arrival) / 1e3)
            tokens += 1
        else:
            # Nothing changes until the next request ends, so its remaining steps are played at once.
            steps = int(remaining[running].min())
            now += float(random.choice(decode_step_us, size=steps).sum())
            remaining[running] -= steps
            tokens += steps * int(running.sum())
        for slot in np.flatnonzero(running & (remaining == 0)).tolist():
            running[slot] = False
            if counted[slot]:
                tpot.append((now - first_token[slot]) / (output_tokens - 1) / 1e3)
            waiting.append(now)
    return ServingEstimate(
        tpot_ms_mean=float(np.mean(tpot)),
        tpot_ms_p95=float(np.percentile(tpot, 95)),
        ttft_ms_mean=float(np.mean(ttft)),
        ttft_ms_p95=float(np.percentile(ttft, 95)),
        output_tokens_per_s=tokens / (now - start) * 1e6,
        requests=len(tpot),
    )
