"""Why an expert is hot or cold in a placement: its value, its rank, and what moving it would cost."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.placement import PlacementDocument


@dataclass(frozen=True)
class ExpertPlace:
    """One expert's place.

    Attributes
    ----------
    layer, expert
        Checkpoint index of the layer, and the expert's id.
    hot
        Where it is.
    value_us
        Microseconds per output token that it saves by being hot, all others staying where they are.
    value_us_per_gib
        The same per GiB of one GPU: what is compared with the multiplier.
    rank
        1 for the most valuable expert of the model.
    """

    layer: int
    expert: int
    hot: bool
    value_us: float
    value_us_per_gib: float
    rank: int


@dataclass(frozen=True)
class Explanation:
    """A layer of a placement, or one of its experts, explained.

    Attributes
    ----------
    layer, expert
        What was asked for; ``expert`` None for the whole layer.
    places
        The layer's experts, most valuable first, or the one asked for.
    hot, experts
        Hot experts of the layer, and experts.
    expert_bytes
        Bytes per GPU that a hot expert takes.
    expert_kv_tokens
        KV tokens that the same bytes hold; None where a token takes none.
    price_us_per_gib
        The solver's multiplier of the budget, or None.
    least_hot, best_cold
        Over all layers: the hot expert that is worth least, and the cold one that would be worth most, of those that
        pins and limits per layer let change places with the expert that was asked for (with any, for a layer).
    objective_us
        Microseconds per output token of the plan, or None.
    calibration
        What the costs behind the values were calibrated with, or None.
    exchange_us
        What the expert that was asked for and ``least_hot`` or ``best_cold`` would save by changing places, each move
        by itself; None where that saves nothing, and for a layer.
    open_us
        How far the plan's objective is above the bound that is proven for all plans, or None.
    not_only_values
        What else than these values the plan was chosen by, or None.
    held_by
        The flag that keeps the layer's count where it is (a pin, or a limit that it has reached), or None.
    """

    layer: int
    expert: int | None
    places: tuple[ExpertPlace, ...]
    hot: int
    experts: int
    expert_bytes: int
    expert_kv_tokens: int | None
    price_us_per_gib: float | None
    least_hot: ExpertPlace | None
    best_cold: ExpertPlace | None
    objective_us: float | None
    calibration: str | None
    exchange_us: float | None = None
    open_us: float | None = None
    not_only_values: str | None = None
    held_by: str | None = None

    def document(self) -> dict[str, Any]:
        """The ``explain --json`` document."""
        reasons = {field: why for field, why in _WHY_NULL.items() if getattr(self, field) is None}
        return {**asdict(self), "null_reasons": reasons}


_WHY_NULL = {
    "expert": "the whole layer was asked for",
    "expert_kv_tokens": "a KV token takes no bytes",
    "price_us_per_gib": "the solver that made the plan states no multiplier of the budget",
    "least_hot": "no hot expert may make room: none is hot, or pins and limits per layer hold them",
    "best_cold": "no cold expert may take a place: none is cold, or pins and limits per layer hold them",
    "objective_us": "the placement states none",
    "calibration": "the profile was not calibrated",
    "exchange_us": "no exchange with the expert that was asked for would save time",
    "open_us": "no bound is stated",
    "not_only_values": "the plan is the one of most value that was found",
    "held_by": "nothing holds the layer's count where it is",
}


def explain(placement: PlacementDocument, layer: int, expert: int | None = None) -> Explanation:
    """Explain ``layer`` (its index in the checkpoint) or one expert of it.

    Values are first-order: they hold for moving one expert, not for moving many at once.

    Raises
    ------
    BadInputError
        When the placement has no such MoE layer or expert, or was made without a trace.
    """
    layers, E = placement.model.layers, placement.model.experts
    if layer not in layers:
        raise BadInputError(
            f"layer {layer} is not a MoE layer of {placement.model.name}",
            f"its MoE layers lie between {layers[0]} and {layers[-1]}",
        )
    if expert is not None and not 0 <= expert < E:
        raise BadInputError(f"expert {expert} is not one of the {E} of a layer", f"give 0 to {E - 1}")
    known = placement.sensitivity
    if known is None:
        reason = placement.null_reasons.get("sensitivity", "it was written by an earlier version of placer")
        raise BadInputError(
            f"the placement does not say what its experts are worth: {reason}", "solve again with a trace"
        )
    value = np.array([known.value_us[str(each)] for each in layers], dtype=np.float64)
    hot = placement.hot_mask()
    per_gib = 2**30 / known.expert_bytes_per_gpu
    order = np.argsort(-value, axis=None, kind="stable")
    rank = np.empty(value.size, dtype=np.int64)
    rank[order] = np.arange(1, value.size + 1)

    def place(at: int) -> ExpertPlace:
        row, column = divmod(at, E)
        worth = float(value[row, column])
        return ExpertPlace(layers[row], column, bool(hot[row, column]), worth, worth * per_gib, int(rank[at]))

    def first(candidates: NDArray[np.bool_]) -> ExpertPlace | None:
        found = candidates.ravel()[order]
        return place(int(order[np.argmax(found)])) if found.any() else None

    def last(candidates: NDArray[np.bool_]) -> ExpertPlace | None:
        found = candidates.ravel()[order[::-1]]
        return place(int(order[::-1][np.argmax(found)])) if found.any() else None

    row = layers.index(layer)
    gives, takes = _movable(placement, hot, row if expert is not None else None)
    start = row * E
    asked = [start + expert] if expert is not None else [int(at) for at in order if start <= at < start + E]
    token_bytes = placement.kv.bytes_per_token_per_gpu
    least_hot, best_cold = last(hot & gives), first(~hot & takes)
    solver = placement.solver
    open_us = None
    if solver.objective_us is not None and solver.bound_us is not None:
        open_us = max(0.0, solver.objective_us - solver.bound_us)
    return Explanation(
        layer=layer,
        expert=expert,
        places=tuple(place(at) for at in asked),
        hot=int(hot[row].sum()),
        experts=E,
        expert_bytes=known.expert_bytes_per_gpu,
        expert_kv_tokens=known.expert_bytes_per_gpu // token_bytes if token_bytes else None,
        price_us_per_gib=known.price_us_per_gib,
        least_hot=least_hot,
        best_cold=best_cold,
        objective_us=placement.solver.objective_us,
        calibration=placement.predicted.provenance.get("calibration"),
        exchange_us=None if expert is None else _exchange_us(place(asked[0]), least_hot, best_cold),
        open_us=open_us,
        not_only_values=_not_only_values(placement),
        held_by=_held_by(placement, layer, int(hot[row].sum())),
    )


def _movable(
    placement: PlacementDocument, hot: NDArray[np.bool_], row: int | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Layers (bool [L, 1], twice) whose hot experts may become cold, and whose cold ones hot.

    With ``row`` in exchange for an expert of that layer: within it any exchange keeps the count.
    """
    free = np.array([layer not in placement.pins for layer in placement.model.layers])
    count = hot.sum(axis=1)
    most = placement.model.experts if placement.most_hot is None else placement.most_hot
    gives, takes = free & (count > placement.least_hot), free & (count < most)
    if row is not None:
        within = free & (np.arange(count.size) == row)
        gives, takes = (gives & takes[row]) | within, (takes & gives[row]) | within
    return gives[:, None], takes[:, None]


def _exchange_us(
    place: ExpertPlace, least_hot: ExpertPlace | None, best_cold: ExpertPlace | None
) -> float | None:
    """What ``place`` and its counterpart save by changing places; None where there is none, or nothing is saved."""
    if place.hot:
        saved = 0.0 if best_cold is None else best_cold.value_us - place.value_us
    else:
        saved = 0.0 if least_hot is None else place.value_us - least_hot.value_us
    return saved if saved > 0 else None


def _not_only_values(placement: PlacementDocument) -> str | None:
    slo = placement.workload.slo
    if placement.heldout.chosen not in (None, "plan"):
        return f"the plan is the baseline '{placement.heldout.chosen}', fastest on the requests kept for choosing"
    if placement.robust is not None:
        return "the plan is made for the worst domain, and the values are those of all traffic"
    if slo.tpot_ms is not None or slo.ttft_ms is not None:
        return "the plan has to keep the latency targets, which the values leave out"
    return None


def _held_by(placement: PlacementDocument, layer: int, count: int) -> str | None:
    pinned = placement.pins.get(layer)
    if pinned is not None:
        return f"--pin {layer}={'all' if pinned else 'none'}"
    if placement.least_hot and count == placement.least_hot:
        return f"--min-hot-per-layer {count}"
    if count == placement.most_hot and count < placement.model.experts:
        return f"--max-hot-per-layer {count}"
    return None
