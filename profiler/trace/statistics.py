"""What a trace is worth: skew beside the uniform null, reuse, and distinct experts by batch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.selection import (
    coverage,
    coverage_of_mask,
    inclusion_share,
    selection_counts,
    selection_share,
)
from placer.profiler.trace.trace import PADDING, Phase, TokenTrace, Trace
from placer.profiler.trace.uniform import uniform_counts

__all__ = [
    "coverage",
    "coverage_of_mask",
    "distinct_experts",
    "gini",
    "lag1_reuse",
    "selection_counts",
    "selection_share",
    "trace_info",
]

COVERAGE_PERCENT = (25, 50, 60)
DISTINCT_BATCHES = (1, 8, 64)
_NULL_DRAWS = 64
_NULL_SEED = 0
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


def trace_info(trace: Trace) -> dict[str, Any]:
    """The ``trace info`` document.

    Skew and reuse are of the decode tokens where there are any (``measured_on``), means over layers; a
    mixed trace adds ``prefill`` with the skew of its prompts. ``uniform_null`` is the coverage that a
    uniform router shows at the same number of tokens (simulated, fixed seed): a small sample looks skewed by
    chance.
    """
    header = trace.header
    document: dict[str, Any] = {
        "kind": "tokens" if isinstance(trace, TokenTrace) else "counts",
        "model": header.model,
        "source": header.source,
        "layers": list(header.layers),
        "experts": header.experts,
        "top_k": header.top_k,
        "tokens": trace.tokens,
    }
    null_reasons: dict[str, str] = {}
    phase: Phase | None = None
    if isinstance(trace, TokenTrace):
        present = [one for one in Phase if np.any(trace.phase == one)]
        phase = Phase.DECODE if Phase.DECODE in present else Phase.PREFILL
        document["requests"] = int(np.unique(trace.request).size)
        document["phases"] = {one.name.lower(): int((trace.phase == one).sum()) for one in present}
        document["measured_on"] = phase.name.lower()
        reuse = lag1_reuse(trace, phase)
        document["lag1_reuse"] = None if reuse is None else float(reuse.mean())
        if reuse is None:
            null_reasons["lag1_reuse"] = "no two consecutive tokens of a request"
    else:
        document["requests"] = len(trace.counts)
        document["phases"] = document["lag1_reuse"] = None
        document["measured_on"] = "all"
        null_reasons["phases"] = "counts do not tell phases apart"
        null_reasons["lag1_reuse"] = "counts hold no token order"
    document["domains"] = list(header.domains)
    counts = _routed(selection_counts(trace, phase), header.layers)
    document.update(_skew(counts, header.top_k))
    share = inclusion_share(counts, header.top_k)
    document["distinct_experts"] = {
        str(batch): float(distinct_experts(share, batch).mean()) for batch in DISTINCT_BATCHES
    }
    document["prefill"] = None
    if phase is Phase.DECODE and Phase.PREFILL in present:
        document["prefill"] = _skew(
            _routed(selection_counts(trace, Phase.PREFILL), header.layers), header.top_k
        )
    else:
        null_reasons["prefill"] = "the trace does not hold both phases"
    document["notes"] = list(header.notes)
    document["null_reasons"] = null_reasons
    return document


def _routed(counts: NDArray[np.int64], layers: tuple[int, ...]) -> NDArray[np.int64]:
    silent = ~counts.any(axis=1)
    if silent.any():
        raise BadInputError(
            f"layer {layers[int(np.argmax(silent))]} has no selection in one of the trace's phases",
            "record more tokens",
        )
    return counts


def _skew(counts: NDArray[np.int64], top_k: int) -> dict[str, Any]:
    """Coverage, its uniform null at the same sample size, and Gini, means over layers (``counts`` [L, E])."""
    tokens = round(float(counts.sum(axis=1).mean()) / top_k)
    null = uniform_counts(
        max(tokens, 1), counts.shape[1], top_k, _NULL_DRAWS, np.random.default_rng(_NULL_SEED)
    )
    shares = {str(percent): percent / 100 for percent in COVERAGE_PERCENT}
    return {
        "coverage": {name: float(coverage(counts, share).mean()) for name, share in shares.items()},
        "uniform_null": {name: float(coverage(null, share).mean()) for name, share in shares.items()},
        "gini": float(gini(counts).mean()),
        "uniform_null_gini": float(gini(null).mean()),
    }
