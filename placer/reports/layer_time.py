"""Where a decode step's time goes, layer by layer."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.placement import PlacementDocument
from placer.reports.absent import Absent

COLD = "cold, beside the hot"
ALL_HOT, ALL_COLD = "all experts hot", "all experts cold"
DRAWN_BESIDE = (COLD, "frequency", ALL_HOT)
"""Of the placements to compare with, those whose lines are shown from the start."""


@dataclass(frozen=True)
class LayerTimes:
    """Mean milliseconds of a decode step in every MoE layer.

    Attributes
    ----------
    layers
        Checkpoint indices.
    parts
        float [L] by name: they add up to the layer's time. One part, the whole, where no split is stated.
    beside
        float [L] by name: what the CPU computes meanwhile, and the layer under other placements.
    outside_ms
        By name: milliseconds of the step that belong to no MoE layer; empty where no split is stated.
    """

    layers: tuple[int, ...]
    parts: Mapping[str, NDArray[np.float64]]
    beside: Mapping[str, NDArray[np.float64]]
    outside_ms: Mapping[str, float]


def layer_times(document: PlacementDocument) -> LayerTimes | Absent:
    """Times of the layers under the plan, split into their parts where the placement states them."""
    whole = document.predicted.per_layer_ms
    if whole is None:
        return Absent("the placement states no times by layer", "solve again with this version of placer")
    beside = {
        name: np.array(figures.per_layer_ms)
        for name, figures in document.baselines.items()
        if figures.per_layer_ms is not None and not document.every_expert_hot
    }
    if document.whole_layers is not None:
        beside |= {
            ALL_HOT: np.array(document.whole_layers.all_hot_ms),
            ALL_COLD: np.array(document.whole_layers.all_cold_ms),
        }
    layers, split = document.model.layers, document.predicted.time_split
    if split is None:
        return LayerTimes(layers, {"MoE layer": np.array(whole)}, beside, {})
    return LayerTimes(
        layers,
        parts={
            "hot": np.array(split.hot),
            "waiting for cold": np.array(split.cold_wait),
            "transfer": np.array(split.transfer),
        },
        beside={COLD: np.array(split.cold), **beside},
        outside_ms={
            "everything outside the experts": split.base,
            "attention for the KV that it reads": split.attention_kv,
        },
    )
