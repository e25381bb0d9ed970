"""A trace split into parts for solving, choosing and reporting: by request, never by token."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.trace import CountTrace, Phase, TokenTrace, Trace

_MOST_DRAWS = 10**9
"""numpy's hypergeometric sampler takes populations below this."""


def split_requests(
    trace: Trace, shares: Sequence[float] = (0.5, 0.2, 0.3), seed: int = 0
) -> tuple[Trace, ...]:
    """Parts of ``trace`` that hold ``shares`` of its requests, each request in one part.

    Requests are drawn at random within each domain, those with and without decode tokens apart, so that parts
    hold the same mix. A count trace is split by window. One with fewer windows than parts cannot be split
    that way: its selections are dealt out at random without replacement, and the header's notes say so, for
    such parts differ by sampling noise only and show no shift between requests.

    Raises
    ------
    BadInputError
        When a token trace has fewer requests than there are parts.
    """
    portions = np.asarray(shares, dtype=np.float64)
    if portions.ndim != 1 or not portions.size or portions.min() <= 0:
        raise BadInputError(f"shares of a split are {list(shares)}", "give positive shares")
    portions = portions / portions.sum()
    random = np.random.default_rng(seed)
    if isinstance(trace, CountTrace):
        if not splits_by_request(trace, portions.size):
            return _dealt(trace, portions, random)
        part = _assigned(np.zeros(len(trace.counts), dtype=np.int64), portions, random)
        return tuple(
            replace(trace, counts=trace.counts[part == one], window_tokens=trace.window_tokens[part == one])
            for one in range(portions.size)
        )
    starts = np.flatnonzero(np.diff(trace.request, prepend=trace.request[0] - np.int64(1)))
    if starts.size < portions.size:
        raise BadInputError(
            f"the trace holds {starts.size} requests and is split by request into {portions.size} parts",
            "record more requests",
        )
    lengths = np.diff(starts, append=trace.tokens)
    decodes = np.add.reduceat(trace.phase == Phase.DECODE, starts, dtype=np.int64) > 0
    domain = np.zeros(starts.size, dtype=np.int64) if trace.domain is None else trace.domain[starts]
    part = _assigned(2 * domain.astype(np.int64) + decodes, portions, random)
    of_token = np.repeat(part, lengths)
    return tuple(tokens_where(trace, of_token == one) for one in range(portions.size))


def splits_by_request(trace: Trace, parts: int) -> bool:
    """Whether `split_requests` into so many parts keeps requests (windows) apart, or deals out one run's counts."""
    return not isinstance(trace, CountTrace) or len(trace.counts) >= parts


def tokens_where(trace: TokenTrace, chosen: NDArray[np.bool_]) -> TokenTrace:
    """The tokens of ``trace`` where ``chosen`` (bool [T]) holds, header kept."""
    return tokens_at(trace, np.flatnonzero(chosen))


def tokens_at(trace: TokenTrace, tokens: NDArray[np.int64]) -> TokenTrace:
    """The tokens of ``trace`` at the indices ``tokens`` (int64 [T]), in that order, header kept."""

    def kept(array: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if array is None else array[tokens]

    return replace(
        trace,
        topk_ids=trace.topk_ids[tokens],
        request=trace.request[tokens],
        position=trace.position[tokens],
        phase=trace.phase[tokens],
        domain=kept(trace.domain),
        topk_weights=kept(trace.topk_weights),
    )


def resampled_requests(trace: Trace, random: np.random.Generator) -> Trace:
    """As many requests (windows) as ``trace`` has, drawn with replacement: one draw of a bootstrap.

    A request that is drawn twice becomes two requests.
    """
    if isinstance(trace, CountTrace):
        drawn = random.integers(0, len(trace.counts), len(trace.counts))
        return replace(trace, counts=trace.counts[drawn], window_tokens=trace.window_tokens[drawn])
    starts = np.flatnonzero(np.diff(trace.request, prepend=trace.request[0] - np.int64(1)))
    lengths = np.diff(starts, append=trace.tokens)
    drawn = random.integers(0, starts.size, starts.size)
    ends = np.cumsum(lengths[drawn])
    within = np.arange(ends[-1]) - np.repeat(ends - lengths[drawn], lengths[drawn])
    tokens = np.repeat(starts[drawn], lengths[drawn]) + within
    renamed = np.repeat(np.arange(drawn.size, dtype=np.int32), lengths[drawn])
    return replace(tokens_at(trace, tokens), request=renamed)


def _assigned(
    stratum: NDArray[np.int64], portions: NDArray[np.float64], random: np.random.Generator
) -> NDArray[np.int64]:
    """Part of each of n ≥ parts members (``stratum`` int [n]): int64 [n], no part empty.

    Each stratum deals the whole members of each share; what is left over goes to the parts that are furthest
    behind over all strata so far.
    """
    part = np.empty(stratum.size, dtype=np.int64)
    got = np.zeros(portions.size, dtype=np.int64)
    seen = 0
    for one in random.permutation(np.unique(stratum)):
        members = random.permutation(np.flatnonzero(stratum == one))
        seen += members.size
        number = np.floor(portions * members.size + 1e-9).astype(np.int64)
        behind = portions * seen - got - number
        for _ in range(members.size - int(number.sum())):
            last = int(np.argmax(behind))
            number[last] += 1
            behind[last] -= 1
        got += number
        part[members] = np.repeat(np.arange(portions.size), number)
    for empty in np.flatnonzero(got == 0):
        fullest = int(np.argmax(got))
        part[random.choice(np.flatnonzero(part == fullest))] = empty
        got[fullest] -= 1
        got[empty] += 1
    return part


def _dealt(
    trace: CountTrace, portions: NDArray[np.float64], random: np.random.Generator
) -> tuple[CountTrace, ...]:
    """Every window's selections dealt out to parts without replacement, layer by layer."""
    note = (
        "not split by request (fewer windows than parts): selections were dealt out at random, so held-out "
        "figures show sampling noise but no difference between requests"
    )
    header = replace(trace.header, notes=(*trace.header.notes, note))
    remaining, tokens_left = trace.counts.copy(), trace.window_tokens.copy()
    parts = []
    for one, portion in enumerate(portions):
        share = portion / portions[one:].sum()
        last = one == portions.size - 1
        tokens = tokens_left if last else np.rint(share * tokens_left).astype(np.int64)
        counts = remaining if last else _drawn(remaining, tokens, tokens_left, random)
        parts.append(CountTrace(header, counts=counts, window_tokens=tokens))
        remaining, tokens_left = remaining - counts, tokens_left - tokens
    return tuple(parts)


def _drawn(
    counts: NDArray[np.int64],
    tokens: NDArray[np.int64],
    tokens_left: NDArray[np.int64],
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """tokens / tokens_left of every layer's selections, drawn without replacement: int64 [W, L, E]."""
    drawn = np.zeros_like(counts)
    for window, layer in np.ndindex(counts.shape[:2]):
        held = counts[window, layer]
        total = int(held.sum())
        share = float(tokens[window]) / max(int(tokens_left[window]), 1)
        if total < _MOST_DRAWS:
            drawn[window, layer] = random.multivariate_hypergeometric(
                held, round(share * total), method="marginals"
            )
        else:
            # Beyond the sampler's range, and sampling noise is far below one percent there.
            drawn[window, layer] = np.rint(share * held)
    return drawn
