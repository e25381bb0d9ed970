"""A plan as counts whose ranking makes sglang-kt select exactly that plan, and the ratio of the cut."""

from collections.abc import Container, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.exports.kt_selection import FLOAT32_EXACT, RUNTIME, KtLayout
from placer.placement import PlacementDocument

NEVER_SELECTED = -1
"""The count of experts in dense rows: below every expert that exists, so that no cut reaches them."""


def ranked_counts(
    hot: Mapping[int, Sequence[int]],
    layers: Sequence[int],
    layout: KtLayout,
    *,
    least: Mapping[int, int] = {},
    full: Container[int] = (),
) -> NDArray[np.int64]:
    """Counts [num_layers, E]: hot experts above every cold one, all of them distinct.

    ``hot`` maps a layer to its hot experts, hottest first; ``layers`` are the model's own MoE layers. The
    count is a rank, from the number of ranked experts down to 1, so that a lower ratio still selects a
    sensible plan: it takes the same share of every layer's hot list, coldest first. A higher one adds cold
    experts evenly over the layers, in id order. Layers that the model or the runtime holds to be dense get
    `NEVER_SELECTED`.

    Limits of single layers hold at other ratios too: the first ``least`` of a layer's hot list rank above all
    other experts, so a lower ratio reaches them last, and the cold ones of a layer that is ``full`` rank below
    all others, so a higher one does. As no limit breaks the order, counts of only 0 and 1 are never needed; at
    any other ratio they would leave the choice to chance.

    Raises
    ------
    BadInputError
        When there are more experts than float32 can tell apart.
    """
    counts = np.full((layout.num_layers, layout.experts), NEVER_SELECTED, dtype=np.int64)
    ranked = [layer for layer in layers if layer in set(layout.moe_layers)]
    total = len(ranked) * layout.experts
    if total >= FLOAT32_EXACT:
        raise BadInputError(
            f"{total:,} experts are more than {RUNTIME} can rank (it compares counts as float32)",
            "no known model has as many; check config.json",
        )
    keys: list[tuple[int, float, int, int]] = []
    for layer in ranked:
        warm = list(hot.get(layer, ()))
        cold = sorted(set(range(layout.experts)) - set(warm))
        kept, rest = warm[: least.get(layer, 0)], warm[least.get(layer, 0) :]
        group = 3 if layer in full else 2
        for number, experts in ((0, kept), (1, rest), (group, cold)):
            keys += [(number, place / len(experts), layer, expert) for place, expert in enumerate(experts)]
    for rank, (_, _, layer, expert) in enumerate(sorted(keys)):
        counts[layer, expert] = total - rank
    return counts


def cut_ratio(hot: int, total: int) -> float:
    """The ``--kt-gpu-experts-ratio`` that makes ``hot`` of ``total`` experts hot, at nine decimals.

    The runtime cuts total x ratio to a whole number, and hot / total can fall just below it (436 / 1440 gives
    435). Half an expert more keeps the product away from both whole numbers; nine decimals move it by less
    than half an expert up to 10^9 experts.
    """
    if hot in (0, total):
        return float(hot > 0)
    return round((hot + 0.5) / total, 9)


def planned_ratio(placement: PlacementDocument, layout: KtLayout) -> float:
    """The ratio that cuts the ranking after the last hot expert of the layers that the runtime ranks."""
    counted = set(layout.moe_layers)
    ranked_hot = sum(len(ids) for layer, ids in placement.hot.items() if int(layer) in counted)
    return cut_ratio(ranked_hot, layout.total_experts)
