"""What clients see of a server: its scheduler played under a workload on given step times."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from placer.profiler.serving.served import Served, ServedRequests, Spread, joined
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
KEEPS_UP = 0.97
"""Share of its capacity up to which a server keeps up with Poisson arrivals. A queue takes about 1 / (1 - share)²
requests to settle, over a thousand beyond this share: what waits there depends on how long one looks."""
_LEAST_COUNTED = 128
_LEAST_VARIED = 512
_LEAST_ARRIVALS = 1024
_PHASES = 128
"""Places in the course of a request at which clients of equal requests are seen, at least; `_MOST_RUNS` of such."""
_MOST_RUNS = 8
_MOST_FILLING = 2048
"""Requests of all such runs that are for filling the server and the queue and for running dry, at most."""
_BLOCK = 64
"""Varying lengths that are dealt out alike to every part of a run, at least."""


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
        KV tokens held, over the time that is counted, and at most.
    retractions
        Retractions per counted request: how often it lost its KV and was prefilled again.
    capacity_per_s
        Requests per second that the server finishes when others always wait; None in a closed loop.
    falls_behind
        Whether requests of an open loop arrive at `KEEPS_UP` of that or faster.
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

    All figures are of one part of the run, in which the server is in its stride: latencies of the requests that arrive
    in it, rates and KV of the time that they arrive in. In a closed loop the first requests that run are cut to random
    lengths, so that clients are out of step from the start; each client's first two requests are for filling the
    server and the queue, and its last one (two, where lengths vary) for running dry. Clients of equal requests stay as
    far out of step as they started, so few of them are played several times, each time cut anew, and all are counted
    together. Of Poisson arrivals, as many as
    run at a time are left out at either end, and at the start as many more as a queue takes to settle; of given arrival
    times none.

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
    load = math.inf if arriving is None else arriving / full.requests_per_s
    behind = arriving is not None and load >= KEEPS_UP
    if workload.rate_per_s is None:
        served = simulate(_given_arrivals(workload, seed), server, times)
        figures = _figures(
            served,
            workload,
            output_tokens_per_s=served.output_tokens_per_s,
            requests_per_s=served.requests_per_s,
            kv_mean_tokens=served.mean_kv_tokens,
            kv_peak_tokens=served.peak_kv_tokens,
        )
    elif behind:
        kept = full.goodput_tokens_per_s if workload.slo_ttft_ms is None else 0.0
        figures = replace(
            full,
            ttft_ms=NEVER,
            queue_ms=NEVER,
            goodput_tokens_per_s=kept,
            output_tokens_per_s=min(1.0, load) * full.output_tokens_per_s,
            requests_per_s=min(1.0, load) * full.requests_per_s,
        )
    else:
        figures = _poisson(times, server, workload, workload.rate_per_s, load, seed)
    return replace(figures, capacity_per_s=full.requests_per_s, falls_behind=behind)


@dataclass(frozen=True)
class _Stretch:
    """A part of a run that is counted: the requests that arrive in it, its length, and means over it."""

    requests: ServedRequests
    us: float
    output_tokens_per_s: float
    kv_mean_tokens: float
    kv_peak_tokens: int


def _stretch(served: Served, first: int, count: int) -> _Stretch:
    """From the arrival of request ``first`` until ``count`` more have arrived."""
    from_us, to_us = served.arrival_us[[first, first + count]].tolist()
    return _Stretch(
        served.part(slice(first, first + count)),
        to_us - from_us,
        served.course.output_tokens_per_s(from_us, to_us),
        served.course.mean_kv_tokens(from_us, to_us),
        served.peak_kv_tokens,
    )


def _closed_loop(
    times: StepTimes, server: Server, workload: Workload, clients: int, seed: int
) -> ServingFigures:
    varied = workload.length_variation > 0
    starting = min(clients, server.max_running)
    # A request that runs alone has no phase.
    runs = 1 if varied or starting == 1 else min(_MOST_RUNS, math.ceil(_PHASES / starting))
    runs = max(1, min(runs, _MOST_FILLING // (3 * clients)))
    # Equal requests end in the order in which they started: whole rounds of those that run are counted, so that each
    # place is counted alike.
    block = clients * math.ceil(_BLOCK / clients) if varied else starting
    # Requests that lose their KV to others end in no order.
    tight = server.kv_tokens < starting * workload.request_tokens
    least = math.ceil((_LEAST_VARIED if varied or tight else _LEAST_COUNTED) / runs)
    blocks = max(math.ceil(4 / runs), math.ceil(least / block))
    first, count, last = 2 * clients, blocks * block, (2 if varied else 1) * clients
    prompts, outputs = _lengths(workload, ((first, 1), (count, blocks), (last, 1)), seed)
    whole, random = outputs[:starting].copy(), np.random.default_rng(seed)
    stretches = []
    for _ in range(runs):
        outputs[:starting] = np.maximum(1, np.ceil(random.random(starting) * whole)).astype(np.int64)
        traffic = _with_cache(closed_loop(clients, prompts, outputs.copy()), workload)
        stretches.append(_stretch(simulate(traffic, server, times), first, count))
    shares = np.array([stretch.us for stretch in stretches]) / sum(stretch.us for stretch in stretches)
    return _figures(
        joined([stretch.requests for stretch in stretches]),
        workload,
        output_tokens_per_s=float(shares @ [stretch.output_tokens_per_s for stretch in stretches]),
        requests_per_s=runs * count / sum(stretch.us for stretch in stretches) * 1e6,
        kv_mean_tokens=float(shares @ [stretch.kv_mean_tokens for stretch in stretches]),
        kv_peak_tokens=max(stretch.kv_peak_tokens for stretch in stretches),
    )


def _poisson(
    times: StepTimes, server: Server, workload: Workload, rate_per_s: float, load: float, seed: int
) -> ServingFigures:
    running = server.max_running
    first, count = (
        running + math.ceil(1 / (1 - load) ** 2),
        max(_LEAST_ARRIVALS, _BLOCK * math.ceil(4 * running / _BLOCK)),
    )
    lengths = _lengths(workload, ((first, 1), (count, count // _BLOCK), (running, 1)), seed)
    traffic = poisson(rate_per_s, *lengths, seed=seed + 1)
    served = simulate(_with_cache(traffic, workload), server, times)
    stretch = _stretch(served, first, count)
    return _figures(
        stretch.requests,
        workload,
        output_tokens_per_s=rate_per_s * float(stretch.requests.output_tokens.mean()),
        requests_per_s=rate_per_s,
        kv_mean_tokens=stretch.kv_mean_tokens,
        kv_peak_tokens=stretch.kv_peak_tokens,
    )


def _given_arrivals(workload: Workload, seed: int) -> Traffic:
    times_s = np.array(workload.arrivals_s)
    # Counted from the first request: of times since 1970 a double keeps a quarter of a microsecond.
    arrivals_us = (times_s - times_s[0]) * 1e6
    if workload.request_lengths is None:
        prompts, outputs = _lengths(workload, ((arrivals_us.size, 1),), seed)
    else:
        prompts, outputs = np.array(workload.request_lengths, dtype=np.int64).T
    return _with_cache(Traffic(prompts, outputs, arrivals_us, 0), workload)


def _lengths(workload: Workload, parts: Sequence[tuple[int, int]], seed: int) -> tuple[Tokens, Tokens]:
    """Lengths of the requests of ``parts`` of a run, one after the other: how many, and in how many blocks each."""
    if not workload.length_variation:
        requests = sum(count for count, _ in parts)
        return fixed_lengths(requests, workload.prompt_tokens, workload.output_tokens)
    drawn = [
        spread_lengths(
            requests,
            workload.prompt_tokens,
            workload.output_tokens,
            variation=workload.length_variation,
            seed=seed + 1000 * part,
            longest=workload.longest,
            blocks=blocks,
        )
        for part, (requests, blocks) in enumerate(parts)
    ]
    prompts, outputs = zip(*drawn, strict=True)
    return np.concatenate(prompts), np.concatenate(outputs)


def _with_cache(traffic: Traffic, workload: Workload) -> Traffic:
    if not workload.prefix_hit:
        return traffic
    found = [workload.cached_tokens(prompt) for prompt in traffic.prompt_tokens.tolist()]
    return replace(traffic, cached_tokens=np.array(found, dtype=np.int64))


def _figures(
    requests: ServedRequests,
    workload: Workload,
    *,
    output_tokens_per_s: float,
    requests_per_s: float,
    kv_mean_tokens: float,
    kv_peak_tokens: int,
) -> ServingFigures:
    goodput = None
    if workload.slo_ttft_ms is not None or workload.slo_tpot_ms is not None:
        kept = requests.kept(ttft_ms=workload.slo_ttft_ms, tpot_ms=workload.slo_tpot_ms)
        tokens = requests.output_tokens
        goodput = output_tokens_per_s * float(tokens[kept].sum() / tokens.sum())
    return ServingFigures(
        ttft_ms=requests.ttft_ms(),
        tpot_ms=requests.tpot_ms(),
        queue_ms=requests.queue_ms(),
        output_tokens_per_s=output_tokens_per_s,
        requests_per_s=requests_per_s,
        goodput_tokens_per_s=goodput,
        kv_mean_tokens=kv_mean_tokens,
        kv_peak_tokens=kv_peak_tokens,
        retractions=float(requests.retractions.mean()),
    )
