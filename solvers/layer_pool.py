"""Good placements of single layers, and the choice of one per layer under the budget."""

import numpy as np
from numpy.typing import NDArray

from placer.solvers.layer_view import Float64s, Ints, LayerView
from placer.solvers.problem import Mask

OPTIONS = 12
"""Options per layer that a choice looks at: those with the least priced cost."""


class LayerPool:
    """For every layer and count of hot experts, the cheapest placement seen."""

    def __init__(self, view: LayerView) -> None:
        L, _, E = view.shape
        self._view = view
        self._masks: list[dict[int, Mask]] = [{} for _ in range(L)]
        self.cost_us: Float64s = np.full((L, E + 1), np.inf)
        """float64 [L, E + 1], cost of the cheapest placement with n hot experts; +inf where none was seen."""

    def add(self, layers: NDArray[np.integer], masks: Mask, cost_us: Float64s) -> None:
        """Offer placements ``masks`` (bool [N, E]) of ``layers`` (int [N]) that cost ``cost_us`` (float [N])."""
        counts = masks.sum(axis=1)
        better = cost_us < self.cost_us[layers, counts] - 1e-9
        for i in np.flatnonzero(better):
            layer, count = int(layers[i]), int(counts[i])
            if cost_us[i] < self.cost_us[layer, count]:
                self.cost_us[layer, count] = cost_us[i]
                self._masks[layer][count] = masks[i].copy()

    def add_plan(self, hot: Mask) -> None:
        """Offer every layer of a whole placement (bool [L, E])."""
        self.add(np.arange(len(hot)), hot, self._view.cost_us(hot))

    def floor_at(self, price: float) -> Float64s:
        """Least priced cost of every layer over what was seen: float64 [L]."""
        counts = np.arange(self.cost_us.shape[1])
        priced = self.cost_us + price * self._view.expert_bytes[:, None] * counts
        return np.asarray(priced.min(axis=1))

    def best_at(self, price: float) -> Mask:
        """The placements behind `floor_at`: bool [L, E]."""
        counts = np.arange(self.cost_us.shape[1])
        priced = self.cost_us + price * self._view.expert_bytes[:, None] * counts
        return np.stack([self._masks[layer][int(n)] for layer, n in enumerate(priced.argmin(axis=1))])

    def price(self, start: float) -> float:
        """The price that maximises the bound that the pool's own placements give, searched from ``start``.

        It is the price at which layers chosen one by one come closest to the budget.
        """
        counts = np.arange(self.cost_us.shape[1])
        bytes_at = self._view.expert_bytes[:, None] * counts

        def used(price: float) -> int:
            chosen = (self.cost_us + price * bytes_at).argmin(axis=1)
            return int(np.take_along_axis(bytes_at, chosen[:, None], axis=1).sum())

        if used(0.0) <= self._view.budget_bytes:
            return 0.0
        low, high = 0.0, max(start, 1e-6 / float(self._view.expert_bytes.max()))
        for _ in range(80):
            if used(high) <= self._view.budget_bytes:
                break
            low, high = high, 2.0 * high
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if used(middle) <= self._view.budget_bytes else (middle, high)
        return high

    def choose(self, price: float) -> Mask | None:
        """One placement per layer within the budget, as cheap as exchanges find: bool [L, E].

        Starts from the least priced cost of every layer, gives bytes back where that costs least per byte
        until the budget holds, then changes one or two layers at a time while it pays. None when the
        options of this price do not fit the budget.
        """
        options, cost, size = self._options(price)
        L = len(options)
        rows = np.arange(L)
        chosen = np.zeros(L, dtype=np.int64)
        spare = self._view.budget_bytes - int(size[rows, chosen].sum())
        while spare < 0:
            saved = size[rows, chosen][:, None] - size
            dearer = cost - cost[rows, chosen][:, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                rate = np.where((saved > 0) & np.isfinite(cost), dearer / np.minimum(saved, -spare), np.inf)
            layer, option = np.unravel_index(int(rate.argmin()), rate.shape)
            if not np.isfinite(rate[layer, option]):
                return None
            spare += int(saved[layer, option])
            chosen[layer] = option
        for _ in range(20 * L):
            d_cost = (cost - cost[rows, chosen][:, None]).ravel()
            d_size = (size - size[rows, chosen][:, None]).ravel()
            move = _best_change(d_cost, d_size, spare, options=cost.shape[1])
            if move is None:
                break
            for flat in move:
                chosen[flat // cost.shape[1]] = flat % cost.shape[1]
                spare -= int(d_size[flat])
        return np.stack([self._masks[layer][int(options[layer, chosen[layer]])] for layer in range(L)])

    def _options(self, price: float) -> tuple[Ints, Float64s, Ints]:
        """Counts, costs and bytes [L, O] of every layer's options, least priced cost first."""
        counts = np.arange(self.cost_us.shape[1])
        bytes_at = self._view.expert_bytes[:, None] * counts
        priced = self.cost_us + price * bytes_at
        options = np.argsort(priced, axis=1, kind="stable")[:, :OPTIONS]
        # The smallest option seen always stays, so that a tight budget finds a way out.
        smallest = np.isfinite(self.cost_us).argmax(axis=1)
        options = np.concatenate([options, smallest[:, None]], axis=1)
        return (
            options.astype(np.int64),
            np.take_along_axis(self.cost_us, options, axis=1),
            np.take_along_axis(bytes_at, options, axis=1).astype(np.int64),
        )


def _best_change(d_cost: Float64s, d_size: Ints, spare: int, *, options: int) -> tuple[int, ...] | None:
    """The cheapest change of one or two layers that keeps the budget, or None when none pays."""
    usable = np.flatnonzero(np.isfinite(d_cost))
    cost, size, layer = d_cost[usable], d_size[usable], usable // options
    tolerance = 1e-9 * (1.0 + float(np.abs(cost).max(initial=0.0)))
    best, move = -tolerance, None
    single = np.where(size <= spare, cost, np.inf)
    if single.size and single.min() < best:
        best, move = float(single.min()), (int(usable[single.argmin()]),)
    # A pair pays only if one of the two makes things cheaper: only those need a partner.
    for first in np.flatnonzero(cost < -tolerance):
        partner = np.where((size + size[first] <= spare) & (layer != layer[first]), cost + cost[first], np.inf)
        second = int(partner.argmin())
        if partner[second] < best:
            best, move = float(partner[second]), (int(usable[first]), int(usable[second]))
    return move
