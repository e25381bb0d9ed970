"""Placements for runtimes that place experts by the layer: four layers of eight experts of 10 bytes."""

from typing import Any

from placements import figures, placement_dict

from placer.placement import PlacementDocument

PER_LAYER_MS = [2.0, 2.0, 2.0, 2.0]


def layerwise(*, room: int, **changes: Any) -> PlacementDocument:
    """A plan with ``room`` bytes for experts; its decode step is 20 ms, 8 of them in MoE layers."""
    document = placement_dict({1: [0]}, layers=[1, 2, 3, 4], experts=8)
    document["hbm"]["ledger"] |= {"hot_experts": 10, "unused": room - 10}
    document["hbm"]["expert_bytes"] = 10
    document["hbm"]["budget_bytes_per_gpu"] = sum(document["hbm"]["ledger"].values())
    document["predicted"] = {
        **figures(),
        "per_layer_ms": PER_LAYER_MS,
        "provenance": {"cold": "fitted", "hot": "datasheet"},
    }
    document["whole_layers"] = {
        "all_hot_ms": [1.0, 1.0, 1.0, 1.0],
        "all_cold_ms": [3.0, 9.0, 4.0, 8.0],
        "active_experts": [4.0, 5.0, 6.0, 7.0],
        "checkpoint_format": "fp8_block",
        "checkpoint_expert_bytes": 10,
    }
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(document.get(name), dict):
            document[name] |= value
        else:
            document[name] = value
    return PlacementDocument.model_validate(document)
