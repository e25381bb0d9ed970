"""Steps whose tokens choose their experts independently, each expert as often as a trace's counts say."""

import numpy as np
from numpy.typing import NDArray

_BLOCK_DRAWS = 4_000_000
_ORDERS = 4
"""Orders of experts per step. With one, experts of about equal frequency that lie a whole number apart are chosen
by the same tokens, and the heaviest of 128 equal experts is 19 % too light at 64 tokens; with four, 2 %."""


def independent_rows(
    share: NDArray[np.float64], tokens: int, steps: int, random: np.random.Generator
) -> NDArray[np.int32]:
    """Rows of ``steps`` steps of ``tokens`` tokens each: int32 [steps, L, E].

    ``share`` [L, E] is the probability that a token holds each expert; rows of a layer sum to its top-k. Each
    token takes a systematic sample (W. G. Madow, Ann. Math. Stat. 20, 1949): experts lie end to end on a line
    with their probabilities as lengths, and a token takes those at u, u + 1, …, u + k − 1 for one uniform u.
    That gives k distinct experts with exactly the given probabilities. The order of experts on the line is
    drawn anew for every step and quarter of the tokens, so no pair is favoured.
    """
    L, E = share.shape
    rows = np.zeros((steps, L, E), dtype=np.int32)
    for part in np.diff(np.arange(_ORDERS + 1) * tokens // _ORDERS):
        block = max(1, _BLOCK_DRAWS // max(int(part), E))
        for start in range(0, steps if part else 0, block):
            _add_one_order(rows[start : start + block], share, int(part), random)
    return rows


def _add_one_order(
    rows: NDArray[np.int32], share: NDArray[np.float64], tokens: int, random: np.random.Generator
) -> None:
    """Add to ``rows`` [S, L, E] tokens that share one order of experts per step."""
    S, L, E = rows.shape
    step = np.arange(S)[:, None]
    order = np.argsort(random.random((S, E), dtype=np.float32), axis=1)
    for layer in range(L):
        line = np.cumsum(share[layer][order], axis=1)
        top_k = round(float(line[0, -1]))
        line[:, -1] = top_k
        # Single precision draws stay below 1 when the number of a step is added.
        uniform = random.random((S, tokens), dtype=np.float32).astype(np.float64)
        along = (_looked_up if tokens * top_k < E else _counted)(line, uniform, step)
        added = np.empty((S, E), dtype=np.int64)
        np.put_along_axis(added, order, along, axis=1)
        rows[:, layer] += added.astype(np.int32)


def _looked_up(
    line: NDArray[np.float64], uniform: NDArray[np.float64], step: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Selections along ``line`` [S, E] of tokens at ``uniform`` [S, B], each looked up: int64 [S, E]."""
    S, E = line.shape
    top_k = int(line[0, -1])
    # Steps are kept apart by adding multiples of the line's length, so one search serves all of them.
    points = uniform[:, :, None] + np.arange(top_k) + (step * top_k)[:, :, None]
    at = np.searchsorted((line + step * top_k).ravel(), points.ravel(), side="right")
    return np.bincount(at, minlength=S * E).reshape(S, E)


def _counted(
    line: NDArray[np.float64], uniform: NDArray[np.float64], step: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The same from sorted u alone: G(x) = ⌊x⌋ · B + #{u < x − ⌊x⌋} selections lie below x."""
    S, E = line.shape
    tokens = uniform.shape[1]
    whole = np.floor(line)
    below = np.searchsorted((np.sort(uniform, axis=1) + step).ravel(), (line - whole + step).ravel())
    selections = whole.astype(np.int64) * tokens + below.reshape(S, E) - step * tokens
    return np.asarray(np.diff(selections, axis=1, prepend=0))
