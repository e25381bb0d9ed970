"""Which experts of a replayed step are computed at once where a runtime defers the weakest selections."""

import numpy as np
from numpy.typing import NDArray

from placer.profiler.replay import rows_of
from placer.profiler.trace.trace import TokenTrace

_BLOCK_IDS = 4_000_000
UNWEIGHTED = (
    "the trace holds no weights of the selections: --deferred-experts defers the last of each token's"
)


def immediate_experts(
    trace: TokenTrace, played: NDArray[np.int64], deferred_experts: int
) -> NDArray[np.bool_]:
    """Experts that a step computes at once: bool [S, L, E] for steps of the tokens ``played`` (int64 [S, B]).

    Each token defers its ``deferred_experts`` selections of least weight, but an expert that any other token of
    the step keeps is computed at once for all of them (kt-kernel 0.7.2, select_deferred_experts).
    """
    S, B = played.shape
    _, L, K = trace.topk_ids.shape
    kept = max(0, K - deferred_experts)
    immediate = np.zeros((S, L, trace.header.experts), dtype=bool)
    if not kept:
        return immediate
    block = max(1, _BLOCK_IDS // (B * L * K))
    for start in range(0, S, block):
        tokens = played[start : start + block]
        ids = trace.topk_ids[tokens.ravel()]
        if trace.topk_weights is not None:
            order = np.argsort(-trace.topk_weights[tokens.ravel()].astype(np.float32), axis=2, kind="stable")
            ids = np.take_along_axis(ids, order, axis=2)
        each = TokenTrace(
            header=trace.header,
            topk_ids=np.ascontiguousarray(ids[:, :, :kept]),
            request=trace.request[tokens.ravel()],
            position=trace.position[tokens.ravel()],
            phase=trace.phase[tokens.ravel()],
        )
        immediate[start : start + block] = rows_of(each, np.arange(tokens.size).reshape(tokens.shape)) > 0
    return immediate
