"""The uniform null: what selection counts look like when a router chooses by chance."""

import numpy as np
from numpy.typing import NDArray


def uniform_counts(
    tokens: int, experts: int, top_k: int, draws: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Counts of ``tokens`` tokens that choose ``top_k`` distinct experts uniformly: int64 [draws, experts].

    Exact, and independent of the number of tokens: experts are visited in turn, and of the tokens that have r
    choices left with m experts to come, Binomial(·, r / m) choose the expert at hand (sequential sampling
    without replacement).
    """
    left = np.arange(top_k + 1)
    waiting = np.zeros((draws, top_k + 1), dtype=np.int64)
    waiting[:, top_k] = tokens
    counts = np.empty((draws, experts), dtype=np.int64)
    for expert in range(experts):
        chance = np.minimum(left / (experts - expert), 1.0)
        choosing = random.binomial(waiting, chance)
        waiting -= choosing
        waiting[:, :-1] += choosing[:, 1:]
        counts[:, expert] = choosing.sum(axis=1)
    return counts
