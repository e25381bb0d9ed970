"""How often each expert is selected, and the share of selections that a set of hot experts serves."""

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.trace import Phase, TokenTrace, Trace

_BLOCK_IDS = 4_000_000
"""Ids counted at a time, so that counting needs little memory beside the trace."""


def selection_counts(trace: Trace, phase: Phase | None = None) -> NDArray[np.int64]:
    """Selections of each expert over the whole trace: int64 [L, E].

    ``phase`` keeps the tokens of one phase; a count trace does not tell phases apart and gives all.
    """
    if not isinstance(trace, TokenTrace):
        return np.asarray(trace.counts.sum(axis=0))
    ids = trace.topk_ids
    tokens = None if phase is None else np.flatnonzero(trace.phase == phase)
    T = len(ids) if tokens is None else len(tokens)
    _, L, K = ids.shape
    width = trace.header.experts + 1
    # A slot behind the last expert of each layer takes the padding.
    layer_base = (np.arange(L, dtype=np.int64) * width)[:, None]
    counts = np.zeros(L * width, dtype=np.int64)
    block = max(1, _BLOCK_IDS // (L * K))
    for start in range(0, T, block):
        part = ids[start : start + block] if tokens is None else ids[tokens[start : start + block]]
        slots = np.minimum(part, width - 1) + layer_base
        counts += np.bincount(slots.ravel(), minlength=counts.size)
    return counts.reshape(L, width)[:, :-1]


def selection_share(trace: Trace, phase: Phase | None = None) -> NDArray[np.float64]:
    """Expected selections per token of each expert: float64 [L, E], top-k per layer in sum, at most 1 each.

    Raises
    ------
    BadInputError
        When the phase holds no tokens, or a layer has selections of fewer than top-k experts.
    """
    counts = selection_counts(trace, phase)
    top_k = trace.header.top_k
    active = (counts > 0).sum(axis=1)
    if active.min() < top_k:
        layer = trace.header.layers[int(np.argmin(active))]
        raise BadInputError(
            f"layer {layer} has selections of {active.min()} experts, fewer than one token's top-{top_k}",
            "record more tokens",
        )
    return inclusion_share(counts, top_k)


def inclusion_share(counts: NDArray[np.int64], top_k: int) -> NDArray[np.float64]:
    """Probability that a token's top-k holds each expert, proportional to ``counts`` [L, E]: float64 [L, E].

    Where proportion alone would exceed 1 (counts and top-k that do not fit), the expert is in every token
    and the rest share what is left. Rows sum to ``top_k``, or to the number of experts with counts where that
    is smaller.
    """
    share = counts * (top_k / np.maximum(counts.sum(axis=1, keepdims=True), 1))
    while True:
        full = share >= 1.0
        over = share.sum(axis=1) - np.where(full, 1.0, share).sum(axis=1)
        if np.all(over <= 1e-12 * top_k):
            return np.where(full, 1.0, share)
        room = top_k - full.sum(axis=1)
        open_sum = np.where(full, 0.0, share).sum(axis=1)
        scale = room / np.where(open_sum > 0, open_sum, 1.0)
        share = np.where(full, 1.0, share * scale[:, None])


def hottest(counts: NDArray[np.integer] | NDArray[np.floating], share: float) -> NDArray[np.bool_]:
    """The most selected ``share`` of each layer's experts, smaller ids first among equals: bool [..., L, E].

    The number of experts is rounded to the nearest whole one.
    """
    kept = round(share * counts.shape[-1])
    order = np.argsort(-counts.astype(np.float64), axis=-1, kind="stable")[..., :kept]
    hot = np.zeros(counts.shape, dtype=np.bool_)
    np.put_along_axis(hot, order, True, axis=-1)
    return hot


def chance_coverage(experts: int, share: float) -> float:
    """Coverage that a hot set of ``share`` of a layer's experts has of selections it knows nothing of."""
    return round(share * experts) / experts


def coverage(counts: NDArray[np.int64], share: float) -> NDArray[np.float64]:
    """Share of a layer's selections that its hottest ``share`` of experts serve: float64 [..., L].

    ``counts`` is [..., L, E]; the number of experts is rounded to the nearest whole one.
    """
    kept = round(share * counts.shape[-1])
    hottest = np.sort(counts, axis=-1)[..., counts.shape[-1] - kept :]
    served: NDArray[np.float64] = hottest.sum(axis=-1) / counts.sum(axis=-1)
    return served


def coverage_of_mask(counts: NDArray[np.integer] | NDArray[np.floating], hot: NDArray[np.bool_]) -> float:
    """Share of all selections that the experts of ``hot`` (bool [L, E]) serve; ``counts`` is [L, E]."""
    return float(counts[hot].sum() / counts.sum())
