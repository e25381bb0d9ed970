"""Layer choice: which MoE layers to keep whole on the GPU, for runtimes that split no layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pulp

from placer.errors import BadInputError
from placer.placement import PlacementDocument
from placer.placement_sections import WholeLayersSection
from placer.solvers.ilp_backend import run_solver


@dataclass(frozen=True)
class LayerChoice:
    """MoE layers (checkpoint indices) that are whole on the GPU, and the predicted decode step with them.

    ``decode_step_ms`` is None where some part of it is not known; ``reason`` then says which.
    """

    hot_layers: tuple[int, ...]
    decode_step_ms: float | None
    reason: str | None = None


def known_layers(placement: PlacementDocument) -> WholeLayersSection:
    """What the placement says of whole layers.

    Raises
    ------
    BadInputError
        When it was written without it.
    """
    if placement.whole_layers is None:
        raise BadInputError(
            "the placement does not say what whole layers cost (field whole_layers)",
            "solve again with this version of placer",
        )
    return placement.whole_layers


def base_step_ms(placement: PlacementDocument) -> float | None:
    """What a decode step takes outside its MoE layers, or None where the placement does not say."""
    per_layer = placement.predicted.per_layer_ms
    return None if per_layer is None else placement.predicted.decode_step_ms - sum(per_layer)


def room_bytes(placement: PlacementDocument) -> int:
    """Bytes per GPU that the plan's budget leaves to experts: those it uses and those unused."""
    ledger = placement.hbm.ledger
    return ledger.get("hot_experts", 0) + ledger.get("unused", 0)


def best_layers(placement: PlacementDocument, layer_bytes: Sequence[int]) -> LayerChoice:
    """The layers whose being hot saves most decode time within the plan's room.

    A knapsack: maximise the time that hot layers save under the sum of their bytes (``layer_bytes``, per GPU, in
    the order of ``model.layers``), solved exactly by HiGHS. With equal bytes it is a sort.

    Raises
    ------
    BadInputError
        When the placement does not say what whole layers cost.
    """
    whole, room = known_layers(placement), room_bytes(placement)
    saved = np.asarray(whole.all_cold_ms) - np.asarray(whole.all_hot_ms)
    problem = pulp.LpProblem("whole_layers", pulp.LpMinimize)
    hot = [pulp.LpVariable(f"x{row}", cat="Binary") for row in range(saved.size)]
    problem += pulp.lpSum(-float(gain) * x for gain, x in zip(saved, hot, strict=True))
    # In units of the room, so that bytes and milliseconds are of one size.
    problem += pulp.lpSum(size / max(room, 1) * x for size, x in zip(layer_bytes, hot, strict=True)) <= 1
    run_solver(problem, "highs", gap=0.0, time_limit_s=10.0)
    chosen = [row for row, x in enumerate(hot) if (x.value() or 0) > 0.5]
    while chosen and sum(layer_bytes[row] for row in chosen) > room:
        # The solver's tolerance may admit a byte too many.
        chosen.remove(min(chosen, key=lambda row: saved[row]))
    base = base_step_ms(placement)
    layers = tuple(placement.model.layers[row] for row in chosen)
    if base is None:
        return LayerChoice(layers, None, "the placement holds no per-layer times")
    kept = set(chosen)
    times = (
        hot_ms if row in kept else cold_ms
        for row, (hot_ms, cold_ms) in enumerate(zip(whole.all_hot_ms, whole.all_cold_ms, strict=True))
    )
    return LayerChoice(layers, base + sum(times))
