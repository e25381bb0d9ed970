"""How many experts of each layer must and may be hot: pinned layers and the limits of all others."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placer.baselines import Baseline, Share, around_pins
from placer.errors import BadInputError
from placer.model.spec import ModelSpec
from placer.solvers.problem import Mask

MIN_FLAG, MAX_FLAG = "--min-hot-per-layer", "--max-hot-per-layer"


@dataclass(frozen=True)
class HotBounds:
    """Bounds on the hot experts of each of L layers.

    Attributes
    ----------
    least, most
        int64 [L].
    pins
        Rows (positions among the MoE layers) that are all hot (True) or all cold (False).
    """

    least: NDArray[np.int64]
    most: NDArray[np.int64]
    pins: Mapping[int, bool] = field(default_factory=dict)

    def baseline(self, place: Baseline, share: Share, hot_total: int) -> Mask:
        """The baseline ``place`` by ``share`` [L, E] with at most ``hot_total`` hot experts, within the bounds.

        Layers below their least take the experts of the largest share, layers above their most lose those of
        the smallest; what that frees goes to the largest shares elsewhere. Every layer's least must fit.
        """
        # Beyond what all layers may hold, every baseline would be all experts, cut down by share.
        mask = around_pins(place, share, min(hot_total, int(self.most.sum())), self.pins)
        wanted = int(mask.sum())
        for row, count in enumerate(mask.sum(axis=1)):
            bounded = int(np.clip(count, self.least[row], self.most[row]))
            if bounded != count:
                add = bounded > count
                ranked = np.argsort(-share[row].astype(np.float64), kind="stable")
                movable = ranked[~mask[row, ranked]] if add else ranked[mask[row, ranked]][::-1]
                mask[row, movable[: abs(bounded - count)]] = add
        self._total(mask, share, min(max(wanted, int(mask.sum())), hot_total))
        return mask

    def _total(self, mask: Mask, share: Share, total: int) -> None:
        """Bring ``mask`` to ``total`` hot experts as far as the bounds allow, by share, in place."""
        turn_hot = int(mask.sum()) < total
        limit = self.most if turn_hot else self.least
        order = np.argsort(-share.astype(np.float64) if turn_hot else share, axis=None, kind="stable")
        count, missing = mask.sum(axis=1), abs(total - int(mask.sum()))
        for flat in order:
            if missing == 0:
                return
            row, expert = divmod(int(flat), mask.shape[1])
            if mask[row, expert] != turn_hot and count[row] != limit[row]:
                mask[row, expert] = turn_hot
                count[row] += 1 if turn_hot else -1
                missing -= 1


def hot_bounds(
    model: ModelSpec, pins: Mapping[int, bool], *, least: int = 0, most: int | None = None
) -> HotBounds:
    """Bounds from ``pins`` (checkpoint index of a layer -> all hot or all cold) and limits of all other layers.

    Raises
    ------
    BadInputError
        When a pin names no MoE layer, or a limit is not a number of experts or exceeds the other.
    """
    L, E = len(model.moe_layers), model.experts
    greatest = E if most is None else most
    for flag, value in ((MIN_FLAG, least), (MAX_FLAG, greatest)):
        if not 0 <= value <= E:
            raise BadInputError(f"{flag} is {value}", f"a layer has {E} experts: give 0 to {E}")
    if least > greatest:
        raise BadInputError(
            f"{MIN_FLAG} {least} exceeds {MAX_FLAG} {greatest}", "lower one or raise the other"
        )
    rows = {}
    for layer, all_hot in sorted(pins.items()):
        if layer not in model.moe_layers:
            raise BadInputError(
                f"--pin names layer {layer}, which is not a MoE layer of {model.name}",
                f"its MoE layers lie between {model.moe_layers[0]} and {model.moe_layers[-1]}",
            )
        rows[model.moe_layers.index(layer)] = all_hot
    low, high = np.full(L, least, dtype=np.int64), np.full(L, greatest, dtype=np.int64)
    for row, all_hot in rows.items():
        low[row] = high[row] = E if all_hot else 0
    return HotBounds(low, high, rows)
