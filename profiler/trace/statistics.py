"""Statistics of routing: skew of counts, reuse between tokens, and distinct experts by batch."""

import numpy as np
from numpy.typing import NDArray

from placer.profiler.trace.trace import PADDING, Phase, TokenTrace

_BLOCK_PAIRS = 2_000_000


def gini(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Gini coefficient of counts [..., E]: 0 when all experts are equal, near 1 when one has all.

    G = 2 Σ i·x_(i) / (E Σ x) − (E + 1) / E over rising x_(1) … x_(E).
    """
    rising = np.sort(counts, axis=-1).astype(np.float64)
    E = rising.shape[-1]
    ranked = (rising * np.arange(1, E + 1)).sum(axis=-1)
    coefficient: NDArray[np.float64] = 2.0 * ranked / (E * rising.sum(axis=-1)) - (E + 1) / E
    return coefficient


def max_over_mean(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Selections of the hottest expert over the mean of all, from counts [..., E]: float64 [...]."""
    return np.asarray(counts.max(axis=-1) / counts.mean(axis=-1))


def lag1_reuse(trace: TokenTrace, phase: Phase | None = None) -> NDArray[np.float64] | None:
    """Probability that an expert of a token is chosen again by the next token of its request: float64 [L].

    None when no two consecutive tokens of the phase were recorded.
    """
    follows = (np.diff(trace.request) == 0) & (np.diff(trace.position) == 1)
    if phase is not None:
        follows &= (trace.phase[:-1] == phase) & (trace.phase[1:] == phase)
    first = np.flatnonzero(follows)
    _, L, K = trace.topk_ids.shape
    again = np.zeros(L, dtype=np.int64)
    chosen = np.zeros(L, dtype=np.int64)
    block = max(1, _BLOCK_PAIRS // (L * K))
    for start in range(0, first.size, block):
        pairs = first[start : start + block]
        # Slots lead, so that each comparison runs over whole arrays.
        before = np.ascontiguousarray(trace.topk_ids[pairs].transpose(2, 0, 1))
        after = np.ascontiguousarray(trace.topk_ids[pairs + 1].transpose(2, 0, 1))
        used = before != PADDING
        chosen += used.sum(axis=(0, 1))
        for slot in range(K):
            again += (used & (before == after[slot])).sum(axis=(0, 1))
    if not chosen.all():
        return None
    return np.asarray(again / chosen)


def distinct_experts(share: NDArray[np.float64], batch: int) -> NDArray[np.float64]:
    """Expected experts of a layer with at least one row among ``batch`` independent tokens: float64 [L].

    Σ_e 1 − (1 − p_e)^B for tokens drawn at random from the trace (``share`` p is `selection_share` [L, E]):
    running requests are at unrelated positions, so their tokens are such draws.
    """
    return np.asarray((1.0 - (1.0 - share) ** batch).sum(axis=1))
