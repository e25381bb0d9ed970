"""Whole layers: what a decode step pays for a MoE layer that is all hot, or all cold.

Runtimes that place experts by the layer, as stock vLLM and llama.cpp do, choose between these two.
"""

from dataclasses import dataclass

import numpy as np

from placer.level_cost import StepCosts


@dataclass(frozen=True)
class WholeLayers:
    """Means over decode steps, one entry per MoE layer.

    Attributes
    ----------
    all_hot_ms, all_cold_ms
        Time of the layer with all its experts hot, and with none.
    active_experts
        Distinct experts with at least one row.
    """

    all_hot_ms: tuple[float, ...]
    all_cold_ms: tuple[float, ...]
    active_experts: tuple[float, ...]


def whole_layers(costs: StepCosts) -> WholeLayers:
    """Of the decode steps behind ``costs``."""
    _, L, E = costs.hot_us.shape
    all_hot, all_cold = (costs.layer_us(np.full((L, E), hot)).mean(axis=0) / 1e3 for hot in (True, False))
    active = ((costs.hot_us > 0) | (costs.cold_us > 0)).sum(axis=2).mean(axis=0)
    return WholeLayers(tuple(all_hot.tolist()), tuple(all_cold.tolist()), tuple(active.tolist()))
