"""Step times: how long a server's step takes, by what it holds."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]


class StepTimes(Protocol):
    """What a simulation asks for."""

    def decode_us(self, requests: int, kv_tokens: int, steps: int) -> Times:
        """Time of ``steps`` decode steps in a row: float [steps].

        ``requests`` run, and hold ``kv_tokens`` together before the first step; each step adds one each.
        """

    def prefill_us(self, requests: int, prompt_tokens: int, kv_tokens: int) -> float:
        """Time of one step of ``prompt_tokens`` prompt tokens beside ``requests`` decoding requests.

        Those hold ``kv_tokens`` together before it.
        """


@dataclass(frozen=True)
class ConstantStepTimes:
    """The null model: every decode step takes the same time, every prefill step too."""

    decode_step_us: float
    prefill_step_us: float

    def decode_us(self, requests: int, kv_tokens: int, steps: int) -> Times:
        """``decode_step_us``, ``steps`` times."""
        return np.full(steps, self.decode_step_us)

    def prefill_us(self, requests: int, prompt_tokens: int, kv_tokens: int) -> float:
        """``prefill_step_us``; a step that also decodes takes both."""
        return self.prefill_step_us + (self.decode_step_us if requests else 0.0)
