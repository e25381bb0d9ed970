"""What a plan gains over other placements on the reported requests, with its error from sampling them.

The figure is the other placement's time per output token over the plan's, less one. Its error comes from a
bootstrap over requests, to first order: how much the figure moves when a request counts double (its influence;
L. A. Jaeckel's infinitesimal jackknife, Bell Labs MM 72-1215-11, 1972) is estimated once, from steps whose slots
are drawn independently, and each draw of the bootstrap adds the influences of the requests that it drew.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.interval import CONFIDENCE, Interval
from placer.level import Level
from placer.level_cost import LevelCosts, StepCosts, step_costs
from placer.model.spec import ModelSpec
from placer.objective import OUTPUT_TOKEN
from placer.profiler.cost import CostModel
from placer.profiler.replay import rows_of
from placer.profiler.steps import StepKind, Steps
from placer.profiler.trace.heldout import LEAST_REQUESTS
from placer.profiler.trace.request_draws import RequestDraws
from placer.profiler.trace.trace import CountTrace, Phase, TokenTrace, Trace
from placer.solvers.problem import Mask
from placer.workload import Workload

DRAWS = 2000
_LEAST_STEPS, _MOST_STEPS = 64, 6000
_MOST_IDS = 24_000_000
"""Ids summed into rows: bounds the time that large steps take."""
_MOST_ENTRIES = 30_000_000
_BLOCK_ENTRIES = 3_000_000


@dataclass(frozen=True)
class Gains:
    """What a plan gains over each other placement.

    Attributes
    ----------
    requests
        Requests that the figures are over.
    over
        By placement name: its time per output token over the plan's, less 1, with a 95 % interval.
    no_interval
        Why there is no interval, or None.
    """

    requests: int
    over: Mapping[str, Interval]
    no_interval: str | None = None

    def indistinct(self) -> tuple[str, ...]:
        """Names of the placements from which the plan cannot be told apart: no gain and no loss is proven."""
        if self.no_interval is not None:
            return ()
        return tuple(name for name, gain in self.over.items() if not gain.excludes_zero)


def gains(
    plan: Mask,
    others: Mapping[str, Mask],
    reporting: Trace,
    costs: LevelCosts,
    *,
    model: ModelSpec,
    cost: CostModel,
    level: Level,
    workload: Workload,
    tp: int,
    prefill_from: str,
    seed: int,
    mix: Mapping[str, float] = {},
) -> Gains:
    """What ``plan`` gains over ``others`` (bool [L, E] each) on the requests of ``reporting``.

    Parameters
    ----------
    costs
        The reported steps; the gain itself is taken from them, and their number adds to its error.
    mix
        Shares of the tokens by domain; requests are then resampled within their domain.
    """
    stated = {name: _ratio(costs, mask, plan) for name, mask in others.items()}
    requests = (
        len(reporting.counts) if isinstance(reporting, CountTrace) else np.unique(reporting.request).size
    )
    why_not = _no_interval(requests, reporting)
    if why_not is not None or isinstance(reporting, CountTrace):
        return Gains(requests, {name: Interval(mean, None, None) for name, mean in stated.items()}, why_not)
    random = np.random.default_rng(seed)
    draws = RequestDraws.of(reporting, mix)
    masks = [plan, *others.values()]
    parts = []
    for reported, weight in _weighted(costs):
        steps = _steps(reported, model)
        if reported.kind is StepKind.DECODE:
            played = draws.slots(steps, reported.tokens, random)
        else:
            played = draws.chunks(steps, reported.tokens, random, from_decode=prefill_from == "decode")
        time_us = _step_us(played, reported, masks, reporting, model, cost, level, workload, tp)
        parts.append(_Part(weight * time_us, _appearances(draws.request[played], draws.requests)))
    multiplicity = draws.multiplicities(DRAWS, random)
    over = {}
    for number, (name, mask) in enumerate(others.items(), start=1):
        influence, noise = _influence(parts, number, draws.stratum)
        spread = multiplicity @ influence
        bootstrapped = float(spread.var())
        # Sampled steps blur the influences and widen the spread; the reported steps are a sample themselves.
        scale = _unblurred(bootstrapped, noise, requests)
        reported_us = np.sqrt(_reported_variance(costs, mask, plan, reporting, drawn=bool(mix)))
        spread = scale * spread + random.normal(0.0, reported_us, DRAWS)
        low, high = np.percentile(spread, (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)))
        over[name] = Interval(stated[name], stated[name] + float(low), stated[name] + float(high))
    return Gains(requests, over)


def _unblurred(variance: float, noise: float, requests: int) -> float:
    """What a spread of ``variance`` is multiplied by to take away the ``noise`` that is in it.

    A variance over G requests is itself known to sqrt(2 / (G - 1)) of its size, so that much of it is never noise:
    where the noise is as large as the variance, what is left is unknown, not zero.
    """
    if variance <= 0:
        return 0.0
    least = min(1.0, float(np.sqrt(2.0 / (requests - 1))))
    return float(np.sqrt(max(1.0 - noise / variance, least)))


@dataclass(frozen=True)
class _Part:
    """Sampled steps of one kind: their share of the time per output token, and who was in them.

    ``time_us`` is float [S, M], the plan's first; ``appearances`` counts how often each of G requests begins or
    goes on in each step, as (step, request, count) triples.
    """

    time_us: NDArray[np.float64]
    appearances: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def _influence(
    parts: list[_Part], number: int, stratum: NDArray[np.int64]
) -> tuple[NDArray[np.float64], float]:
    """What each request counted once more adds to the gain over placement ``number``: float [G], and the share of
    their summed squares that is due to the sample of steps."""
    plan_us = sum(float(part.time_us[:, 0].mean()) for part in parts)
    ratio = sum(float(part.time_us[:, number].mean()) for part in parts) / plan_us
    influence, noise = np.zeros(stratum.size), 0.0
    for part in parts:
        step, request, times = part.appearances
        S = len(part.time_us)
        excess = (part.time_us[:, number] - ratio * part.time_us[:, 0]) / plan_us
        excess = excess - excess.mean()
        own = np.bincount(request, weights=times * excess[step], minlength=stratum.size) / S
        # A request takes the place of others of its stratum.
        seen = np.bincount(request, weights=times, minlength=stratum.size)
        of_stratum = np.bincount(stratum, weights=own)[stratum]
        influence += own - of_stratum * seen / np.maximum(np.bincount(stratum, weights=seen)[stratum], 1.0)
        noise += float(excess.var() * (times.astype(np.float64) ** 2).sum()) / S**2
    return influence, noise


def _appearances(
    request: NDArray[np.int64], requests: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """How often each request takes part in each step (``request`` int [S, B]), a run of its tokens counting once."""
    begins = np.diff(request, axis=1, prepend=-1) != 0
    step = np.broadcast_to(np.arange(len(request))[:, None], request.shape)
    cells, times = np.unique(step[begins] * requests + request[begins], return_counts=True)
    return cells // requests, cells % requests, times


def _steps(reported: StepCosts, model: ModelSpec) -> int:
    """Steps to estimate influences from: as many as the time allows."""
    layers = len(model.moe_layers)
    ids, entries = reported.tokens * layers * model.top_k, layers * model.experts
    return max(_LEAST_STEPS, min(_MOST_STEPS, _MOST_IDS // ids, _MOST_ENTRIES // entries))


def _step_us(
    played: NDArray[np.int64],
    reported: StepCosts,
    masks: list[Mask],
    trace: TokenTrace,
    model: ModelSpec,
    cost: CostModel,
    level: Level,
    workload: Workload,
    tp: int,
) -> NDArray[np.float64]:
    """Time of steps that hold the tokens ``played`` [S, B] under each of M masks: float [S, M]."""
    entries = len(model.moe_layers) * max(model.experts, reported.tokens * model.top_k)
    block = max(1, _BLOCK_ENTRIES // entries)
    time_us = np.empty((len(played), len(masks)))
    for start in range(0, len(played), block):
        here = played[start : start + block]
        steps = Steps(rows_of(trace, here), np.full(len(here), reported.tokens), reported.kind)
        costs = step_costs(model, cost, steps, level.settings, workload, tp)
        for number, mask in enumerate(masks):
            time_us[start : start + block, number] = costs.step_us(mask)
    return time_us


def _weighted(costs: LevelCosts) -> list[tuple[StepCosts, float]]:
    """The kinds of steps with the weight of a step's time in the time per output token."""
    return list(costs.weighted_parts(OUTPUT_TOKEN))


def _ratio(costs: LevelCosts, other: Mask, plan: Mask) -> float:
    return costs.output_token_us(other) / costs.output_token_us(plan) - 1.0


def _reported_variance(
    costs: LevelCosts, other: Mask, plan: Mask, trace: TokenTrace, *, drawn: bool
) -> float:
    """Variance of `_ratio` by the number of reported steps alone (delta method).

    Steps are evenly spaced over the trace, so what they leave out of it decides: steps that play all of it have none.
    Where tokens are ``drawn`` by a mix of domains, no number of steps plays all of it.
    """
    plan_us = costs.output_token_us(plan)
    ratio = costs.output_token_us(other) / plan_us
    variance = 0.0
    for part, weight in _weighted(costs):
        excess = weight * (part.step_us(other) - ratio * part.step_us(plan)) / plan_us
        left_out = 1.0 if drawn else max(0.0, 1.0 - len(excess) * part.tokens / _tokens_of(part.kind, trace))
        variance += left_out * float(excess.var()) / len(excess)
    return variance


def _tokens_of(kind: StepKind, trace: TokenTrace) -> int:
    """Tokens of ``trace`` that steps of this kind play: decode tokens stand in where it has no prompts."""
    prompts = int((trace.phase == Phase.PREFILL).sum())
    return prompts if kind is StepKind.PREFILL and prompts else trace.tokens - prompts


def _no_interval(requests: int, trace: Trace) -> str | None:
    if isinstance(trace, CountTrace):
        return "counts do not hold what a request's tokens choose together"
    if requests < LEAST_REQUESTS:
        return f"{requests} requests are reported on: at least {LEAST_REQUESTS} are needed"
    return None
