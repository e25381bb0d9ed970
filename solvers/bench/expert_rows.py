"""Made-up routing: how many rows each expert has in steps of tokens that choose their experts at random."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

TOPICS = 4
"""Kinds of requests; each has its own taste for experts."""
SKEW, TASTE = 1.0, 0.5
"""Spread (standard deviation of the logarithm) of what all topics share, and of what each has for itself."""


class Router:
    """Expert popularity of ``layers`` x ``experts`` and draws from it.

    A topic k wants expert e of layer l with weight exp(1.0·g_le + 0.5·g_kle), g standard normal. A token
    takes its ``top_k`` experts one after the other, without repetition, in proportion to these weights: the
    first ``top_k`` arrivals of exponential clocks with the weights as rates. The topics of a step's tokens
    are drawn anew for every step, and hold for all its layers.

    ``random`` is a `numpy.random.RandomState`, whose stream is frozen across versions of numpy: equal seeds
    give equal instances, and an instance made today keeps its records.
    """

    def __init__(self, random: np.random.RandomState, *, layers: int, experts: int, top_k: int) -> None:
        self._random, self._top_k = random, top_k
        shared = SKEW * random.standard_normal((layers, 1, experts))
        own = TASTE * random.standard_normal((layers, TOPICS, experts))
        self._weights = np.exp(shared + own)

    def rows(self, steps: int, tokens: int) -> NDArray[np.integer[Any]]:
        """Rows in ``steps`` steps of ``tokens`` tokens: uint16 [S, L, E], tokens·top-k in every layer-step."""
        L, _, E = self._weights.shape
        topic = self._random.randint(TOPICS, size=(steps, tokens))
        rows = np.zeros((steps, L, E), dtype=np.uint16)
        for layer in range(L):
            for step in range(steps):
                arrivals = self._random.standard_exponential((tokens, E)) / self._weights[layer, topic[step]]
                first = np.argpartition(arrivals, self._top_k - 1, axis=1)[:, : self._top_k]
                rows[step, layer] = np.bincount(first.ravel(), minlength=E)
        return rows
