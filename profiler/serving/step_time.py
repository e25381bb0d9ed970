"""Step times: how long a server's step takes, by what it holds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class StepSamples:
    """Sampled times of steps of ``tokens`` tokens.

    Attributes
    ----------
    layers_us
        float64 [S], what the MoE layers of S replayed steps take together.
    base_us, kv_token_us
        Time outside the experts: base_us + kv_token_us * (KV tokens that the step's requests hold).
    """

    tokens: int
    layers_us: Times
    base_us: float
    kv_token_us: float


class SampledStepTimes:
    """Step times from replayed steps of some sizes.

    A decode step of B requests runs in the next larger sampled size, as CUDA graphs are padded. A prefill step
    lies on the line between equal quantiles of the sizes around it.

    Parameters
    ----------
    decode, prefill
        By ascending ``tokens``; sizes beyond the largest are taken in proportion to it.
    """

    def __init__(self, decode: Sequence[StepSamples], prefill: Sequence[StepSamples], seed: int) -> None:
        self._decode = tuple(sorted(decode, key=lambda samples: samples.tokens))
        self._prefill = tuple(
            replace(samples, layers_us=np.sort(samples.layers_us))
            for samples in sorted(prefill, key=lambda samples: samples.tokens)
        )
        self._decode_tokens = np.array([samples.tokens for samples in self._decode])
        self._prefill_tokens = np.array([samples.tokens for samples in self._prefill])
        self._random = np.random.default_rng(seed)

    def decode_us(self, requests: int, kv_tokens: int, steps: int) -> Times:
        """Times of ``steps`` draws; the KV that is read grows by one token per request and step."""
        place = int(np.searchsorted(self._decode_tokens, requests))
        samples = self._decode[min(place, len(self._decode) - 1)]
        drawn = samples.layers_us[self._random.integers(samples.layers_us.size, size=steps)]
        scale = max(1.0, requests / samples.tokens)
        held = kv_tokens + requests * np.arange(1, steps + 1)
        return np.asarray(drawn * scale + samples.base_us + samples.kv_token_us * held)

    def prefill_us(self, requests: int, prompt_tokens: int, kv_tokens: int) -> float:
        """One draw at ``requests + prompt_tokens`` tokens."""
        tokens = requests + prompt_tokens
        place = int(np.searchsorted(self._prefill_tokens, tokens))
        above = self._prefill[min(place, len(self._prefill) - 1)]
        below = self._prefill[max(0, place - 1)] if place < len(self._prefill) else above
        share = (tokens - below.tokens) / (above.tokens - below.tokens) if above is not below else 1.0
        draw = self._random.random()
        layers = sum(
            weight * float(samples.layers_us[int(draw * samples.layers_us.size)])
            for samples, weight in ((below, 1 - share), (above, share))
        )
        base = (1 - share) * below.base_us + share * above.base_us
        beyond = max(1.0, tokens / above.tokens)
        return (layers + base) * beyond + above.kv_token_us * kv_tokens
