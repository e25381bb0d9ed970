"""How well hot experts learned from some requests serve others, with a confidence interval over requests."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.profiler.trace.request_counts import RequestCounts
from placer.profiler.trace.selection import hottest

LEAST_REQUESTS = 8
"""Fewer requests than this say nothing of how requests differ."""
_DRAWS = 200
_SEED = 0
_BLOCK_ENTRIES = 20_000_000


@dataclass(frozen=True)
class HeldoutCoverage:
    """Coverage of requests that the hot set was not learned from; means over layers.

    Attributes
    ----------
    mean, low, high
        Mean and 95 % interval over resampled requests. By chance, coverage is the share of hot experts itself.
    fitted
        Coverage of the requests that the hot set was learned from, the mean over the same draws.
    """

    mean: float
    low: float
    high: float
    fitted: float


def heldout_coverage(requests: RequestCounts, share: float) -> HeldoutCoverage | None:
    """Held-out coverage of the hottest ``share`` of every layer's experts, by bootstrap over requests.

    Each draw takes as many requests of each domain as there are, with replacement; their hottest experts are
    tested on the requests that were not drawn (about 37 %, the out-of-bag sample of B. Efron, Ann. Stat. 7,
    1979). None for fewer than `LEAST_REQUESTS` requests.
    """
    G, L, E = requests.counts.shape
    if G < LEAST_REQUESTS:
        return None
    random = np.random.default_rng(_SEED)
    flat = requests.counts.reshape(G, L * E).astype(np.float64)
    total = flat.sum(axis=0)
    fitted: list[NDArray[np.float64]] = []
    tested: list[NDArray[np.float64]] = []
    block = max(1, _BLOCK_ENTRIES // (L * E))
    for start in range(0, _DRAWS, block):
        draws = min(block, _DRAWS - start)
        taken = np.stack([_taken(requests.domain, random) for _ in range(draws)])
        learned = (taken @ flat).reshape(draws, L, E)
        seen = ((taken > 0).astype(np.float64) @ flat).reshape(draws, L, E)
        unseen = total.reshape(L, E) - seen
        hot = hottest(learned, share)
        full = (unseen.sum(axis=2) > 0).all(axis=1) & (learned.sum(axis=2) > 0).all(axis=1)
        fitted.append(_served(learned[full], hot[full]))
        tested.append(_served(unseen[full], hot[full]))
    held = np.concatenate(tested)
    if not held.size:
        return None
    low, high = np.percentile(held, (2.5, 97.5))
    return HeldoutCoverage(
        mean=float(held.mean()),
        low=float(low),
        high=float(high),
        fitted=float(np.concatenate(fitted).mean()),
    )


def _taken(domain: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """How often each request is drawn, every domain as often as it is there (``domain`` int [G]): int64 [G].

    Requests that are alone in their domain are drawn among each other: otherwise each would be in every draw.
    """
    taken = np.zeros(domain.size, dtype=np.int64)
    _, stratum, size = np.unique(domain, return_inverse=True, return_counts=True)
    stratum = np.where(size[stratum] == 1, -1, stratum)
    for one in np.unique(stratum):
        members = np.flatnonzero(stratum == one)
        np.add.at(taken, random.choice(members, members.size), 1)
    return taken


def _served(counts: NDArray[np.float64], hot: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Share of selections that ``hot`` serves, mean over layers: float64 [draws] from [draws, L, E]."""
    return np.asarray((np.where(hot, counts, 0.0).sum(axis=2) / counts.sum(axis=2)).mean(axis=1))
