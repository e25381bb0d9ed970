"""The course of a run: how much KV was held and how many tokens were put out, up to every moment."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Course:
    """Sums since the start of a run, at the ends of its steps; linear between them.

    Attributes
    ----------
    now_us
        float64 [M], ascending.
    kv_token_us
        float64 [M], KV tokens held, integrated over time.
    output_tokens
        float64 [M], output tokens put out.
    """

    now_us: NDArray[np.float64]
    kv_token_us: NDArray[np.float64]
    output_tokens: NDArray[np.float64]

    def mean_kv_tokens(self, from_us: float, to_us: float) -> float:
        """KV tokens held, averaged over the time between two moments."""
        return self._grown(self.kv_token_us, from_us, to_us) / (to_us - from_us)

    def output_tokens_per_s(self, from_us: float, to_us: float) -> float:
        """Output tokens of all requests between two moments, over the time between them."""
        return self._grown(self.output_tokens, from_us, to_us) / (to_us - from_us) * 1e6

    def _grown(self, total: NDArray[np.float64], from_us: float, to_us: float) -> float:
        before, after = np.interp((from_us, to_us), self.now_us, total)
        return float(after - before)
