"""The proven lower bound: the budget, every max() and every layer-step's count relaxed by multipliers.

Why the bound holds. Write the layers of a placement as *all cold*, *all hot* or *mixed*; let x be any
placement that keeps the budget and the layers' bounds, all times weighted (see `LayerView`).

1. Budget. For a price p >= 0 per byte, p (bytes used - budget) <= 0, so the objective is at least
   objective + p (bytes used - budget), which is a sum over layers minus p times the budget. It is
   therefore at least the sum over layers of the least value that the layer can take by itself. Nothing
   is lost by rounding the budget down to a multiple of the greatest common divisor of the expert bytes.
2. All cold and all hot layers have one placement each; their value is computed exactly.
3. Mixed layers. For shares a in [0, 1] and any tilts g (both per layer-step), with H, C the two sides
   without charges and k(x) the free active experts that are hot, `StepEnvelope` gives

       step >= a H(x) + (1 - a) C(x) + a hot_extra[k(x)] + (1 - a) cold_extra[k(x)]
            >= a H(x) + (1 - a) C(x) + g k(x) + min over k of (a hot_extra[k] + (1 - a) cold_extra[k] - g k).

   The minimum is a constant, computed over every k. The rest is linear in x: the sum over steps of
   (a hot_us - (1 - a) cold_us + g [active]) plus the linear term plus p times the bytes is the reduced
   cost of an expert, and the least sum over counts between the layer's bounds takes the smallest first.
4. Decided experts. A layer bound on placements that agree with `Decided` bounds the layer by
   min(cutoff, bound), where the cutoff is the one that `decide` used at the same price: a placement that
   disagrees costs more than the cutoff. `LayerFloors` keeps the price beside the cutoffs for that reason.

Multipliers may come from anywhere (here: an interior-point method stopped early); they only decide how
good the bound is, never whether it holds. Everything is summed in float64 and lowered by a bound on the
rounding error: sums of n terms in any order err by at most about n u times the sum of magnitudes
(Higham, Accuracy and Stability of Numerical Algorithms, section 4.2), u = 2^-53.
"""

from dataclasses import dataclass

import numpy as np

from placer.solvers.decided import Decided
from placer.solvers.envelope import StepEnvelope
from placer.solvers.layer_view import Float64s, Ints, LayerView


@dataclass(frozen=True)
class Multipliers:
    """What weighs the relaxed constraints.

    Attributes
    ----------
    price
        Microseconds per byte of the budget, >= 0.
    hot_share
        float64 [L, S] in [0, 1], weight of the hot side in each max().
    tilt_us
        float64 [L, S], microseconds per active hot expert in each layer-step; any value.
    """

    price: float
    hot_share: Float64s
    tilt_us: Float64s


@dataclass(frozen=True)
class MixedLayers:
    """Lower bound on every mixed layer as a function of the price, at fixed shares and tilts.

    Attributes
    ----------
    constant_us
        float64 [L], what no free expert changes, rounding error already taken off.
    reduced_us
        float64 [L, E], reduced costs before the price of bytes; decided experts are in ``constant_us``.
    multipliers, least_us
        The shares and tilts, and float64 [L, S], the minimum over k in step 3 of the proof: together they bound
        every layer-step by itself, which an exact layer takes as a row.
    fewest, most
        int64 [L], bounds on the number of hot experts among the free ones.
    """

    constant_us: Float64s
    reduced_us: Float64s
    decided: Decided
    expert_bytes: Ints
    fewest: Ints
    most: Ints
    multipliers: Multipliers
    least_us: Float64s

    def reduced_at(self, price: float) -> Float64s:
        """Reduced cost of every expert with bytes and counts priced: float64 [L, E], 0 where decided.

        Where a bound on the count binds, the price of the count lies between the last expert taken and the
        first left out: with it the unlimited minimum over the layer meets the limited one.
        """
        free = self.decided.free
        priced = self.reduced_us + price * self.expert_bytes[:, None]
        wanted = (free & (priced < 0)).sum(axis=1)
        for layer in np.flatnonzero((wanted < self.fewest) | (wanted > self.most)):
            ranked = np.sort(priced[layer, free[layer]])
            if len(ranked) == 0:
                continue
            count = int(np.clip(wanted[layer], self.fewest[layer], max(self.most[layer], 0)))
            around = ranked[max(count - 1, 0) : count + 1]
            priced[layer] -= around.mean() if 0 < count < len(ranked) else around[0]
        return np.where(free, priced, 0.0)

    def floor_at(self, price: float) -> tuple[Float64s, Ints]:
        """Lower bound of every mixed layer at ``price`` and its count of hot experts: [L] each.

        The bound is +inf where no count is allowed.
        """
        L, E = self.reduced_us.shape
        free = self.decided.free
        priced = self.reduced_us + price * self.expert_bytes[:, None]
        settled = self.decided.hot.sum(axis=1)
        floor = np.empty(L)
        count = np.empty(L, dtype=np.int64)
        negative = free & (priced < 0)
        wanted = negative.sum(axis=1)
        plain = (wanted >= self.fewest) & (wanted <= self.most)
        floor[plain] = np.where(negative[plain], priced[plain], 0.0).sum(axis=1)
        count[plain] = wanted[plain]
        for layer in np.flatnonzero(~plain):
            low, high = int(self.fewest[layer]), int(min(self.most[layer], free[layer].sum()))
            if low > high:
                floor[layer], count[layer] = np.inf, settled[layer]
                continue
            sums = np.concatenate([[0.0], np.cumsum(np.sort(priced[layer, free[layer]]))])
            best = low + int(np.argmin(sums[low : high + 1]))
            floor[layer], count[layer] = sums[best], best
        margin = np.finfo(np.float64).eps * (E + 16) * np.abs(priced).sum(axis=1)
        settled_us = price * self.expert_bytes * settled
        return floor + self.constant_us + settled_us - margin, count + settled


def relax_mixed(
    view: LayerView, envelope: StepEnvelope, decided: Decided, multipliers: Multipliers
) -> MixedLayers:
    """Evaluate step 3 of the proof for every layer.

    ``envelope`` must have been built for ``decided``. Shares are clipped into [0, 1].
    """
    L, S, E = view.shape
    share = np.clip(multipliers.hot_share, 0.0, 1.0)
    tilt = np.where(np.isfinite(multipliers.tilt_us), multipliers.tilt_us, 0.0)
    free = decided.free
    constant = np.empty(L)
    reduced = np.empty((L, E))
    least = np.empty((L, S))
    ks = np.arange(envelope.hot_extra_us.shape[2])
    for layer in range(L):
        hot, cold = view.hot_us[layer], view.cold_us[layer]
        a, g = share[layer], tilt[layer]
        cold_share = 1.0 - a
        step = _mix(
            a[:, None], envelope.hot_extra_us[layer], cold_share[:, None], envelope.cold_extra_us[layer]
        )
        step -= g[:, None] * ks
        least[layer] = step.min(axis=1)
        reduced[layer] = a @ hot - cold_share @ cold + view.linear_us[layer]
        if np.any(g):
            reduced[layer] += g @ ((hot > 0) | (cold > 0)).astype(np.float64)
        settled_hot, settled_cold = decided.hot[layer], ~decided.hot[layer]
        sides = a @ hot[:, settled_hot].sum(axis=1) + cold_share @ cold[:, settled_cold].sum(axis=1)
        linear = view.linear_us[layer, settled_hot].sum()
        magnitude = view.magnitude_us[layer] + 2 * E * np.abs(g).sum()
        margin = np.finfo(np.float64).eps * (S + E + 64) * 2 * magnitude
        constant[layer] = sides + linear + least[layer].sum() - margin
    settled = decided.hot.sum(axis=1)
    return MixedLayers(
        constant_us=constant,
        reduced_us=np.where(free, reduced, 0.0),
        decided=decided,
        expert_bytes=view.expert_bytes,
        fewest=np.maximum(view.fewest - settled, 0),
        most=view.most - settled,
        multipliers=Multipliers(multipliers.price, share, tilt),
        least_us=least,
    )


def _mix(a: Float64s, hot_extra: Float64s, b: Float64s, cold_extra: Float64s) -> Float64s:
    # 0 * inf is undefined, but an impossible k must stay impossible.
    with np.errstate(invalid="ignore"):
        mixed = a * hot_extra + b * cold_extra
    mixed[np.isinf(hot_extra)] = np.inf
    return np.asarray(mixed)


@dataclass(frozen=True)
class PureLayers:
    """Exact cost of every layer that is all cold or all hot: float64 [L], +inf where its bounds forbid it."""

    cold_us: Float64s
    hot_us: Float64s
    hot_bytes: Ints

    def best_at(self, price: float) -> Float64s:
        """Lower of the two at ``price``: float64 [L]."""
        return np.minimum(self.cold_us, self.hot_us + price * self.hot_bytes)


def pure_layers(view: LayerView) -> PureLayers:
    """Cost of every all-cold and all-hot layer, rounding error taken off."""
    L, S, E = view.shape
    cold = view.cost_us(np.zeros((L, E), dtype=bool))
    hot = view.cost_us(np.ones((L, E), dtype=bool))
    size = np.finfo(np.float64).eps * (S + E + 16) * 2
    return PureLayers(
        cold_us=np.where(view.may_be_cold, cold - size * np.abs(cold), np.inf),
        hot_us=np.where(
            view.may_be_hot, hot - size * (np.abs(hot) + np.abs(view.linear_us).sum(axis=1)), np.inf
        ),
        hot_bytes=view.expert_bytes * E,
    )


def total_bound(floors_us: Float64s, price: float, budget_bytes: int) -> float:
    """Sum of layer floors minus the price of the whole budget, rounding error taken off."""
    priced = price * budget_bytes
    size = float(np.abs(floors_us).sum()) + abs(priced)
    return float(floors_us.sum()) - priced - float(np.finfo(np.float64).eps) * (len(floors_us) + 16) * size
