"""Selections by group of requests: what resampling over requests and comparing domains need."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.profiler.trace.trace import Phase, TokenTrace, Trace

MOST_GROUPS = 512
"""Requests beyond this many are put together at random: an interval over 512 groups is as good as over more."""
_MOST_ENTRIES = 20_000_000
_BLOCK_IDS = 4_000_000
_SEED = 0


@dataclass(frozen=True)
class RequestCounts:
    """Selections of each expert by group of requests, every group within one domain.

    Attributes
    ----------
    counts
        int64 [G, L, E]; a group is one request (one window of a count trace) while there are few.
    domain
        int64 [G] into the header's domains, -1 where a group has none.
    requests
        Requests (windows) in all.
    """

    counts: NDArray[np.int64]
    domain: NDArray[np.int64]
    requests: int


def request_counts(trace: Trace, phase: Phase | None = None) -> RequestCounts:
    """Selections of ``trace`` by group of requests; ``phase`` keeps the tokens of one phase of a token trace."""
    L, E = len(trace.header.layers), trace.header.experts
    most = max(8, min(MOST_GROUPS, _MOST_ENTRIES // (L * E)))
    if not isinstance(trace, TokenTrace):
        windows = len(trace.counts)
        group = _groups(np.full(windows, -1), most)
        counts = np.zeros((int(group.max()) + 1, L, E), dtype=np.int64)
        np.add.at(counts, group, trace.counts)
        return RequestCounts(counts, np.full(len(counts), -1), windows)
    tokens = None if phase is None else np.flatnonzero(trace.phase == phase)
    request = trace.request if tokens is None else trace.request[tokens]
    starts = np.flatnonzero(np.diff(request, prepend=request[0] - np.int64(1)))
    firsts = starts if tokens is None else tokens[starts]
    domain = (
        np.full(starts.size, -1) if trace.domain is None else np.asarray(trace.domain[firsts], dtype=np.int64)
    )
    group = _groups(domain, most)
    of_token = np.repeat(group, np.diff(starts, append=request.size))
    group_domain = np.full(int(group.max()) + 1, -1)
    group_domain[group] = domain
    return RequestCounts(
        _token_counts(trace, tokens, of_token, len(group_domain)), group_domain, int(starts.size)
    )


def _groups(domain: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Group of each request (``domain`` int [R]): int64 [R], at most about ``most`` of them.

    Each domain's requests are dealt out at random over its share of the groups, at least two.
    """
    R = domain.size
    if most >= R:
        return np.arange(R)
    random = np.random.default_rng(_SEED)
    group = np.empty(R, dtype=np.int64)
    first = 0
    for one in np.unique(domain):
        members = random.permutation(np.flatnonzero(domain == one))
        groups = min(members.size, max(2, most * members.size // R))
        group[members] = first + np.arange(members.size) % groups
        first += groups
    return group


def _token_counts(
    trace: TokenTrace, tokens: NDArray[np.int64] | None, group: NDArray[np.int64], groups: int
) -> NDArray[np.int64]:
    """Selections by the tokens' groups (``group`` int [T]): int64 [groups, L, E]."""
    _, L, K = trace.topk_ids.shape
    width = trace.header.experts + 1
    # A slot behind the last expert of each layer takes the padding.
    layer_base = (np.arange(L, dtype=np.int64) * width)[:, None]
    counts = np.zeros((groups, L, width), dtype=np.int64)
    block = max(1, _BLOCK_IDS // (L * K))
    for start in range(0, group.size, block):
        here = slice(start, start + block)
        ids = trace.topk_ids[here if tokens is None else tokens[here]]
        # Requests lie together, so a block touches few groups.
        touched, within = np.unique(group[here], return_inverse=True)
        slots = np.minimum(ids, width - 1) + layer_base + (within * (L * width))[:, None, None]
        summed = np.bincount(slots.ravel(), minlength=touched.size * L * width)
        counts[touched] += summed.reshape(touched.size, L, width)
    return np.ascontiguousarray(counts[:, :, :-1])
