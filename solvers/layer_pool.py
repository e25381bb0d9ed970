"""Good placements of single layers, and the choice of one per layer under the budget."""

import numpy as np
from numpy.typing import NDArray

from placer.solvers.layer_view import Float64s, Ints, LayerView
from placer.solvers.problem import Mask

OPTIONS = 12
"""Options per layer that a choice looks at: those with the least priced cost."""
CELLS = 200_000
"""Cells of the dynamic program over bytes, at most."""


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
        """One placement per layer within the budget, of least cost over the options: bool [L, E].

        Dynamic program over bytes (multiple-choice knapsack), exact while a byte unit small enough for
        `CELLS` cells divides every expert's bytes; a coarser unit rounds bytes up, which keeps the budget.
        None when no options of this price fit the budget.
        """
        options, cost, size = self._options(price)
        L, width = cost.shape
        rows = np.arange(L)
        least = np.where(np.isfinite(cost), size, np.iinfo(np.int64).max).min(axis=1)
        extra = np.where(np.isfinite(cost), size - least[:, None], 0)
        spare = self._view.budget_bytes - int(least.sum())
        if spare < 0:
            return None
        spare = min(spare, int(extra.max(axis=1).sum()))
        unit = max(int(np.gcd.reduce(extra, axis=None)), 1)
        unit = max(unit, -(-spare // CELLS))
        weight = -(-extra // unit)
        cells = spare // unit + 1
        table = np.zeros(cells)
        taken = np.zeros((L, cells), dtype=np.int8)
        for layer in range(L):
            best = np.full(cells, np.inf)
            for option in range(width):
                w = int(weight[layer, option])
                if w >= cells or not np.isfinite(cost[layer, option]):
                    continue
                value = table[: cells - w] + cost[layer, option]
                better = np.flatnonzero(value < best[w:])
                best[w + better] = value[better]
                taken[layer, w + better] = option
            table = best
        chosen = np.zeros(L, dtype=np.int64)
        cell = cells - 1
        for layer in rows[::-1]:
            chosen[layer] = taken[layer, cell]
            cell -= int(weight[layer, chosen[layer]])
        return np.stack([self._masks[layer][int(options[layer, chosen[layer]])] for layer in rows])

    def _options(self, price: float) -> tuple[Ints, Float64s, Ints]:
        """Counts, costs and bytes [L, OPTIONS + 1] of every layer's options, least priced cost first."""
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
