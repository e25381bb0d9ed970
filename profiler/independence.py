"""Steps whose tokens choose their experts independently, each expert as often as a trace's counts say."""

import numpy as np
from numpy.typing import NDArray

_BLOCK_DRAWS = 4_000_000
_ORDERS = 4
"""Orders of experts per step and layer. With one, experts of about equal frequency that lie a whole number apart
are chosen by the same tokens, and the heaviest of 128 equal experts is 19 % too light at 64 tokens; with four, 2 %."""


def independent_rows(
    share: NDArray[np.float64], tokens: int, steps: int, random: np.random.Generator
) -> NDArray[np.int32]:
    """Rows of ``steps`` steps of ``tokens`` tokens each: int32 [steps, L, E].

    ``share`` [L, E] is the probability that a token holds each expert; rows of a layer sum to its top-k. Each
    token takes a systematic sample (W. G. Madow, Ann. Math. Stat. 20, 1949): experts lie end to end on a line
    with their probabilities as lengths, and a token takes those at u, u + 1, …, u + k − 1 for one uniform u.
    That gives k distinct experts with exactly the given probabilities. The order of experts on the line is
    drawn anew for every step, layer and quarter of the tokens, so no pair is favoured.
    """
    parts = np.diff(np.arange(_ORDERS + 1) * tokens // _ORDERS)
    return np.asarray(sum(_one_order(share, int(part), steps, random) for part in parts if part))


def _one_order(
    share: NDArray[np.float64], tokens: int, steps: int, random: np.random.Generator
) -> NDArray[np.int32]:
    """Rows of tokens that share one order of experts per step and layer: int32 [steps, L, E].

    They follow from the sorted u alone: G(x) = ⌊x⌋ · B + #{u < x − ⌊x⌋} selections lie below x.
    """
    L, E = share.shape
    rows = np.empty((steps, L, E), dtype=np.int32)
    block = max(1, _BLOCK_DRAWS // max(tokens, E))
    for start in range(0, steps, block):
        count = min(block, steps - start)
        step = np.arange(count, dtype=np.float64)[:, None]
        for layer in range(L):
            order = np.argsort(random.random((count, E), dtype=np.float32), axis=1)
            line = np.cumsum(share[layer][order], axis=1)
            line[:, -1] = np.round(line[:, -1])
            uniform = np.sort(random.random((count, tokens)), axis=1)
            whole = np.floor(line)
            # Steps are kept apart by adding their number, so one search serves all of them.
            below = np.searchsorted((uniform + step).ravel(), (line - whole + step).ravel()).reshape(count, E)
            below -= (step * tokens).astype(np.int64)
            selections = whole.astype(np.int64) * tokens + below
            np.put_along_axis(
                rows[start : start + count, layer], order, np.diff(selections, axis=1, prepend=0), axis=1
            )
    return rows
