"""The measured base of a step: time outside the routed experts, from kernels that were timed part by part."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from placer.profiler.attention_layers import AttentionLayers
from placer.profiler.step_load import StepLoad

MOST = 1e15
"""No time or size of a usable base reaches this."""


@dataclass(frozen=True)
class TokenCurve:
    """Microseconds by tokens of a step: straight lines through what was timed, the last one going on beyond.

    ``tokens`` ascend; below the first its time holds.
    """

    tokens: tuple[int, ...]
    us: tuple[float, ...]

    def at(self, tokens: int) -> float:
        """Time at ``tokens`` tokens; 0 at none."""
        if tokens <= 0:
            return 0.0
        beyond = tokens - self.tokens[-1]
        if beyond <= 0 or len(self.tokens) == 1:
            return float(np.interp(tokens, self.tokens, self.us))
        slope = (self.us[-1] - self.us[-2]) / (self.tokens[-1] - self.tokens[-2])
        return self.us[-1] + max(0.0, slope) * beyond


@dataclass(frozen=True)
class BasePart:
    """A kernel that a step launches ``count`` times, for all of its tokens or for those sampled from.

    ``heldout_mape`` is the curve's mean error at token counts that lie between its own.
    """

    name: str
    count: int
    sampled_only: bool
    curve: TokenCurve
    heldout_mape: float


@dataclass(frozen=True)
class AttentionFit:
    """fixed_us + token_us·Q + pair_us·Q·entries for Q tokens of a layer, each attending to so many entries.

    ``most_pairs`` is the largest Q·entries timed; ``heldout_mape`` the mean error on points outside the fit.
    """

    fixed_us: float
    token_us: float
    pair_us: float
    most_pairs: int
    heldout_mape: float

    def at(self, tokens: int, entries: float) -> float:
        """Time of ``tokens`` tokens that each attend to ``entries`` cached entries."""
        return self.fixed_us + self.token_us * tokens + self.pair_us * tokens * entries if tokens else 0.0


@dataclass(frozen=True)
class AttentionPart:
    """Layers that attend alike. Where no kernel was timed, entries cost their bytes or their operations.

    Attributes
    ----------
    layers
        Which, and what a token sees in them.
    decode, prefill
        Of one layer on one GPU, with entries in bf16; FP8 entries, of which a server reads half the bytes, are
        charged as much. None where no kernel here computes such attention.
    """

    layers: AttentionLayers
    decode: AttentionFit | None
    prefill: AttentionFit | None


@dataclass(frozen=True)
class BaseCost:
    """Everything of a step outside the routed experts and the transfers, on one of ``tp`` GPUs.

    Attributes
    ----------
    device, machine
        "cuda" (never "cpu" in a profile), and the name of the device.
    kernels
        Attention kernels that were timed, and versions, one sentence.
    layers
        Layers of the model.
    parts, attention
        What was timed. ``all_reduce`` (two per layer) is None at tp 1 or where too few GPUs were there, in which
        case ``assumed_layer_us`` of every layer stands in for it.
    untimed_weights_bytes, state_request_bytes
        Weights that no part reads, once per step; states that a decoding request reads and writes, without
        windows.
    bytes_per_s, bf16_flops
        Bandwidth and dense product of the same run, for what was not timed.
    notes
        One sentence for everything that was not timed or gave way.
    """

    device: str
    machine: str
    kernels: str
    tp: int
    layers: int
    parts: tuple[BasePart, ...]
    attention: tuple[AttentionPart, ...]
    all_reduce: TokenCurve | None
    assumed_layer_us: float
    untimed_weights_bytes: int
    state_request_bytes: int
    bytes_per_s: float
    bf16_flops: float
    notes: tuple[str, ...]

    def step_us(self, load: StepLoad, *, kv_dtype: str) -> float:
        """Microseconds of a step of ``load``: the sum of its parts, which follow each other on one stream."""
        parts_us = sum(
            part.count * part.curve.at(load.sampled_tokens if part.sampled_only else load.tokens)
            for part in self.parts
        )
        attention_us = sum(self._attention_us(part, load, kv_dtype) for part in self.attention)
        untimed = self.untimed_weights_bytes + 2 * load.batch * self.state_request_bytes
        return (
            parts_us
            + attention_us
            + untimed / self.bytes_per_s * 1e6
            + self.layers * self.assumed_layer_us
            + (2 * self.layers * self.all_reduce.at(load.tokens) if self.all_reduce else 0.0)
        )

    def _attention_us(self, part: AttentionPart, load: StepLoad, kv_dtype: str) -> float:
        layers = part.layers
        entries = layers.entries(load.context_tokens)
        chunk_entries = layers.entries(load.chunk_context_tokens)
        if part.decode is not None:
            decode_us = layers.layers * part.decode.at(load.batch, entries)
        else:
            entry_bytes = layers.bf16_bytes if kv_dtype == "bf16" else layers.fp8_bytes
            read = load.batch * entries * entry_bytes * layers.kv_heads_per_gpu(self.tp) * layers.layers
            decode_us = read / self.bytes_per_s * 1e6
        if part.prefill is not None:
            return decode_us + layers.layers * part.prefill.at(load.chunk_tokens, chunk_entries)
        pairs = load.chunk_tokens * chunk_entries
        return decode_us + pairs * layers.pair_flops(self.tp) / self.bf16_flops * 1e6

    @property
    def worst_mape(self) -> float:
        """The largest held-out error of any part."""
        errors = [part.heldout_mape for part in self.parts]
        errors += [fit.heldout_mape for fit in self._fits()]
        return max(errors, default=0.0)

    def _fits(self) -> list[AttentionFit]:
        return [fit for part in self.attention for fit in (part.decode, part.prefill) if fit is not None]

    def fault(self, tp: int) -> str | None:
        """What makes this unusable in a profile for ``tp``, or None."""
        if self.device != "cuda":
            return f"was timed on {self.device!r:.20}, not on a GPU"
        if self.tp != tp:
            return f"was timed for tp {self.tp}"
        curves = [part.curve for part in self.parts] + ([self.all_reduce] if self.all_reduce else [])
        for curve in curves:
            if len(curve.tokens) != len(curve.us) or not curve.tokens or not _ascending(curve.tokens):
                return "a curve's tokens do not ascend, or are not as many as its times"
        numbers = [us for curve in curves for us in curve.us]
        numbers += [value for fit in self._fits() for value in (fit.fixed_us, fit.token_us, fit.pair_us)]
        numbers += [self.assumed_layer_us, self.untimed_weights_bytes, self.state_request_bytes]
        if not all(0 <= number < MOST for number in numbers) or min(self.bytes_per_s, self.bf16_flops) <= 0:
            return "a time or rate is out of range"
        return None


def _ascending(tokens: tuple[int, ...]) -> bool:
    return tokens[0] >= 1 and all(before < after for before, after in pairwise(tokens))
