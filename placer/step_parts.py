"""The parts of a placement's steps: what each side takes, and how they add up to a step, under any factors."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placer.deferral import deferred_layers_us
from placer.level_cost import StepCosts
from placer.model.spec import ModelSpec
from placer.profiler.factor import UNCALIBRATED, Factors
from placer.solvers.problem import Mask

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StepParts:
    """S steps of one kind and size under one placement.

    Attributes
    ----------
    hot_us, cold_us, transfer_us
        float [S, L]: the GPU's side, the CPU's without its copies, and the copies.
    deferred_us
        float [S, L], CPU work that runs beside the next layer; None where nothing is deferred.
    base_us, kv_token_us
        Outside the experts: base_us + kv_token_us for every KV token that the decoding requests hold.
    gap_share
        float [L], share of ``base_us`` that lies between a layer's merge and the next one's experts.
    """

    hot_us: Floats
    cold_us: Floats
    transfer_us: Floats
    deferred_us: Floats | None
    base_us: float
    kv_token_us: float
    gap_share: Floats

    def layers_us(self, factors: Factors = UNCALIBRATED) -> Floats:
        """What each layer's experts add to a step: float [S, L]."""
        hot_us = factors.hot * self.hot_us
        cold_us = factors.cold * self.cold_us + factors.transfer * self.transfer_us
        if self.deferred_us is None:
            return np.asarray(np.maximum(hot_us, cold_us))
        gap_us = factors.base * self.base_us * self.gap_share
        return deferred_layers_us(hot_us, cold_us, factors.cold * self.deferred_us, gap_us)

    def split(self, kv_tokens: float) -> "TimeSplit":
        """Where the mean step's time goes, while ``kv_tokens`` are held."""
        wait_us = np.maximum(0.0, self.layers_us() - self.hot_us)
        copies_us = np.minimum(wait_us, self.transfer_us)
        cold_us = self.cold_us if self.deferred_us is None else self.cold_us + self.deferred_us

        def mean_ms(part_us: Floats) -> tuple[float, ...]:
            return tuple((part_us.mean(axis=0) / 1e3).tolist())

        return TimeSplit(
            base_ms=self.base_us / 1e3,
            attention_kv_ms=self.kv_token_us * kv_tokens / 1e3,
            hot_ms=mean_ms(self.hot_us),
            cold_wait_ms=mean_ms(wait_us - copies_us),
            transfer_ms=mean_ms(copies_us),
            cold_ms=mean_ms(cold_us),
        )


@dataclass(frozen=True)
class TimeSplit:
    """Where a step's time goes: the parts but ``cold_ms`` sum to the step.

    Attributes
    ----------
    base_ms
        Everything outside the experts but the KV that attention reads: projections, router, output head, launches,
        and the merge of the sides, one of the layer's kernels.
    attention_kv_ms
        What attention takes for the KV that is held.
    hot_ms, cold_wait_ms, transfer_ms
        By MoE layer: the GPU's experts; how long the CPU takes beyond them; and of that what the copies take.
    cold_ms
        By MoE layer: how long the CPU computes, beside the rest.
    """

    base_ms: float
    attention_kv_ms: float
    hot_ms: tuple[float, ...]
    cold_wait_ms: tuple[float, ...]
    transfer_ms: tuple[float, ...]
    cold_ms: tuple[float, ...]

    @property
    def step_ms(self) -> float:
        """The mean step."""
        layers = sum(self.hot_ms) + sum(self.cold_wait_ms) + sum(self.transfer_ms)
        return self.base_ms + self.attention_kv_ms + layers


def step_parts(
    model: ModelSpec, costs: StepCosts, hot: Mask, *, batch: int, context_tokens: int
) -> StepParts:
    """The parts of the steps behind ``costs`` under ``hot`` (bool [L, E]).

    ``batch`` decoding requests of ``context_tokens`` are what ``costs`` charges for KV.
    """
    after = np.diff([*model.moe_layers, model.num_layers]) / model.num_layers
    transfer_us = costs.transfer_us
    if costs.immediate is None:
        hot_us, cold_us = costs.side_us(hot)
        deferred_us = None
    else:
        hot_us, whole_us = costs.side_us(hot)
        _, cold_us = replace(costs, cold_us=costs.cold_us * costs.immediate).side_us(hot)
        _, deferred_us = replace(costs, cold_us=costs.cold_us * ~costs.immediate).side_us(hot)
        # The hidden states are on the host by then. The last layer defers nothing.
        deferred_us = np.maximum(0.0, deferred_us - transfer_us)
        cold_us[:, -1], deferred_us[:, -1] = whole_us[:, -1], 0.0
    copies_us = np.minimum(cold_us, transfer_us)
    return StepParts(
        hot_us=hot_us,
        cold_us=cold_us - copies_us,
        transfer_us=copies_us,
        deferred_us=deferred_us,
        base_us=costs.base_us - costs.kv_token_us * batch * context_tokens,
        kv_token_us=costs.kv_token_us,
        gap_share=after,
    )
