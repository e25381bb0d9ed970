"""What clients see of a server: its scheduler played under a workload on given step times."""

import math
from dataclasses import dataclass, replace

import numpy as np

from placer.profiler.serving.served import EVERY, Served, Spread
from placer.profiler.serving.server import Server
from placer.profiler.serving.simulation import simulate
from placer.profiler.serving.step_time import StepTimes
from placer.profiler.serving.traffic import (
    Tokens,
    Traffic,
    closed_loop,
    fixed_lengths,
    poisson,
    spread_lengths,
)
from placer.workload import Workload

NEVER = Spread(math.inf, math.inf, math.inf, math.inf)
"""Of a wait that grows for as long as requests arrive."""
_LEAST_COUNTED = 64
_LEAST_ARRIVALS = 1024


@dataclass(frozen=True)
class ServingFigures:
    """What clients see, and how full the server is.

    Attributes
    ----------
    ttft_ms, tpot_ms, queue_ms
        Over requests. TTFT and queue are infinite where Poisson arrivals outrun the server.
    output_tokens_per_s, requests_per_s
        Of all clients together, once the server is full; what arrives, where an open loop stays below capacity.
    goodput_tokens_per_s
        Output tokens per second of requests that keep every target of the workload; None without targets.
    kv_mean_tokens, kv_peak_tokens
        KV tokens held, over time and at most.
    retractions
        Retractions per request: how often a request lost its KV and was prefilled again.
    capacity_per_s
        Requests per second that the server finishes when others always wait; None in a closed loop.
    falls_behind
        Whether requests of an open loop arrive faster than that.
    """

    ttft_ms: Spread
    tpot_ms: Spread
    queue_ms: Spread
    output_tokens_per_s: float
    requests_per_s: float
    goodput_tokens_per_s: float | None
    kv_mean_tokens: float
    kv_peak_tokens: int
    retractions: float
    capacity_per_s: float | None = None
    falls_behind: bool = False


def serving_figures(times: StepTimes, server: Server, workload: Workload, seed: int) -> ServingFigures:
    """Figures of ``workload`` on ``server``, whose steps take ``times``.

    A closed loop has each client's first request cut to a random length, so that clients are out of step from
    the start; their first and last requests are for warming up and for running dry. Of Poisson arrivals, as many
    requests as run at a time are left out at either end; of given arrival times none.

    Raises
    ------
    BadInputError
        When a request can never be held by the KV pool.
    """
    if not workload.is_open_loop:
        return _closed_loop(times, server, workload, workload.concurrency, seed)
    # Twice the running requests keep the queue from ever running empty.
    full = _closed_loop(times, server, workload, 2 * server.max_running, seed)
    arriving = workload.arrival_rate_per_s
    behind = arriving is not None and arriving >= full.requests_per_s
    if workload.rate_per_s is None:
        served = simulate(_given_arrivals(workload, seed), server, times)
        figures = _figures(served, workload, EVERY, served.output_tokens_per_s, served.requests_per_s)
    elif behind:
        kept = full.goodput_tokens_per_s if workload.slo_ttft_ms is None else 0.0
        figures = replace(full, ttft_ms=NEVER, queue_ms=NEVER, goodput_tokens_per_s=kept)
    else:
        figures = _poisson(times, server, workload, workload.rate_per_s, seed)
    return replace(figures, capacity_per_s=full.requests_per_s, falls_behind=behind)


def _closed_loop(
    times: StepTimes, server: Server, workload: Workload, clients: int, seed: int
) -> ServingFigures:
    prompts, outputs = _lengths(workload, 2 * clients + max(_LEAST_COUNTED, 4 * clients), seed)
    cut = np.random.default_rng(seed).integers(1, workload.output_tokens, size=clients)
    outputs[:clients] = np.minimum(outputs[:clients], cut)
    served = simulate(_with_cache(closed_loop(clients, prompts, outputs), workload), server, times)
    return _figures(
        served,
        workload,
        slice(clients, -clients),
        served.steady_output_tokens_per_s(clients),
        served.steady_requests_per_s(clients),
    )


def _poisson(
    times: StepTimes, server: Server, workload: Workload, rate_per_s: float, seed: int
) -> ServingFigures:
    skipped = server.max_running
    lengths = _lengths(workload, 2 * skipped + max(_LEAST_ARRIVALS, 4 * skipped), seed)
    traffic = poisson(rate_per_s, *lengths, seed=seed + 1)
    served = simulate(_with_cache(traffic, workload), server, times)
    counted = slice(skipped, -skipped)
    tokens_per_s = rate_per_s * float(served.output_tokens[counted].mean())
    return _figures(served, workload, counted, tokens_per_s, rate_per_s)


def _given_arrivals(workload: Workload, seed: int) -> Traffic:
    arrivals_us = np.array(workload.arrivals_s) * 1e6
    if workload.request_lengths is None:
        prompts, outputs = _lengths(workload, arrivals_us.size, seed)
    else:
        prompts, outputs = np.array(workload.request_lengths, dtype=np.int64).T
    return _with_cache(Traffic(prompts, outputs, arrivals_us, 0), workload)


def _lengths(workload: Workload, requests: int, seed: int) -> tuple[Tokens, Tokens]:
    if not workload.length_variation:
        return fixed_lengths(requests, workload.prompt_tokens, workload.output_tokens)
    return spread_lengths(
        requests,
        workload.prompt_tokens,
        workload.output_tokens,
        variation=workload.length_variation,
        seed=seed,
        longest=workload.longest,
    )


def _with_cache(traffic: Traffic, workload: Workload) -> Traffic:
    if not workload.prefix_hit:
        return traffic
    found = [workload.cached_tokens(prompt) for prompt in traffic.prompt_tokens.tolist()]
    return replace(traffic, cached_tokens=np.array(found, dtype=np.int64))


def _figures(
    served: Served, workload: Workload, counted: slice, output_tokens_per_s: float, requests_per_s: float
) -> ServingFigures:
    goodput = None
    if workload.slo_ttft_ms is not None or workload.slo_tpot_ms is not None:
        kept = served.kept(ttft_ms=workload.slo_ttft_ms, tpot_ms=workload.slo_tpot_ms)[counted]
        tokens = served.output_tokens[counted]
        goodput = output_tokens_per_s * float(tokens[kept].sum() / tokens.sum())
    return ServingFigures(
        ttft_ms=served.ttft_ms(counted),
        tpot_ms=served.tpot_ms(counted),
        queue_ms=served.queue_ms(counted),
        output_tokens_per_s=output_tokens_per_s,
        requests_per_s=requests_per_s,
        goodput_tokens_per_s=goodput,
        kv_mean_tokens=served.mean_kv_tokens,
        kv_peak_tokens=served.peak_kv_tokens,
        retractions=float(served.retractions.mean()),
    )
