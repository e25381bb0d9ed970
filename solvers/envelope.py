"""What one layer-step costs at least for each number of its active experts that are hot."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.solvers.decided import Decided
from placer.solvers.layer_view import Float64s, LayerView
from placer.solvers.problem import FixedCharge, Mask


@dataclass(frozen=True)
class StepEnvelope:
    """Lower bounds on every layer-step by k, the number of free active experts that are hot.

    Write H and C for the two sides without fixed charges. For every placement of a mixed layer that
    agrees with the decided experts, every step, and every share a in [0, 1]

        max(hot side, cold side) >= a H + (1 - a) C + a hot_extra[k] + (1 - a) cold_extra[k].

    Proof. Let h_k and c_k be what is certain to come on top of the sums at k: charges, and on the cold side
    what the heaviest expert asks for beyond the sum (`_heaviest_extra`). For any two numbers,
    max(p, q) = a p + (1 - a) q + (1 - a) max(p - q, 0) + a max(q - p, 0). Put p = H + h_k, q = C + c_k.
    Each free active expert that turns hot raises H - C by hot_us + cold_us >= 0, so over all choices of
    k experts H - C lies between the sum of the k smallest of these and the sum of the k largest (plus a
    constant): the two max() terms are at least their values at those ends. Then
    hot_extra = h_k + max(0, -(greatest p - q)) and cold_extra = c_k + max(0, least p - q).

    With one token per step all active experts cost alike, least and greatest meet, and the bound is the
    exact cost of k: this is what the linear relaxation of max() loses at low concurrency.

    Attributes
    ----------
    hot_extra_us, cold_extra_us
        float64 [L, S, K + 1], +inf for k beyond the free active experts of the step.
    free_active
        int64 [L, S], number of free experts with a cost in the step.
    ambiguous
        int64 [L, S], how many k leave open which side is longer; few means that the envelope is tight.
    """

    hot_extra_us: Float64s
    cold_extra_us: Float64s
    free_active: NDArray[np.int64]
    ambiguous: NDArray[np.int64]


def step_envelope(view: LayerView, decided: Decided) -> StepEnvelope:
    """Build the envelope of every layer-step, one layer at a time (memory stays at [S, E])."""
    L, S, _ = view.shape
    free = decided.free
    active_any = (view.hot_us > 0) | (view.cold_us > 0)
    counts = (active_any & free[:, None, :]).sum(axis=2)
    widest = int(counts.max(initial=0))
    ks = np.arange(widest + 1)
    hot_extra = np.empty((L, S, widest + 1))
    cold_extra = np.empty((L, S, widest + 1))
    ambiguous = np.empty((L, S), dtype=np.int64)
    for layer in range(L):
        hot, cold = view.hot_us[layer], view.cold_us[layer]
        open_here, count = free[layer], counts[layer][:, None]
        active = active_any[layer] & open_here
        gain = np.sort(np.where(active, hot + cold, np.inf), axis=1)[:, :widest]
        gain[~np.isfinite(gain)] = 0.0
        least = np.concatenate([np.zeros((S, 1)), np.cumsum(gain, axis=1)], axis=1)
        greatest = least[:, -1:] - np.take_along_axis(least, np.maximum(count - ks, 0), axis=1)
        settled_hot = hot[:, decided.hot[layer]].sum(axis=1)
        settled_cold = cold[:, decided.cold[layer]].sum(axis=1)
        offset = (settled_hot - settled_cold - cold[:, open_here].sum(axis=1))[:, None]
        charge_hot = view.hot_fixed_us[layer][:, None] * _certain(
            view.hot_fixed_when,
            ks,
            count,
            (hot[:, open_here] > 0).sum(axis=1)[:, None],
            settled_hot[:, None] > 0,
        )
        charge_cold = view.cold_fixed_us[layer][:, None] * _certain(
            view.cold_fixed_when,
            count - ks,
            count,
            (cold[:, open_here] > 0).sum(axis=1)[:, None],
            settled_cold[:, None] > 0,
        )
        if view.heaviest_factor is not None:
            charge_cold = charge_cold + _heaviest_extra(
                view.heaviest_factor, cold, decided.cold[layer], active, count - ks
            )
        low = least + offset + charge_hot - charge_cold
        high = greatest + offset + charge_hot - charge_cold
        possible = ks <= count
        hot_extra[layer] = np.where(possible, charge_hot + np.maximum(0.0, -high), np.inf)
        cold_extra[layer] = np.where(possible, charge_cold + np.maximum(0.0, low), np.inf)
        ambiguous[layer] = (possible & (low < 0) & (high > 0)).sum(axis=1)
    return StepEnvelope(hot_extra, cold_extra, counts, ambiguous)


def _heaviest_extra(
    factor: Float64s, cold_us: Float64s, settled: Mask, active: Mask, members: NDArray[np.int64]
) -> Float64s:
    """What the max-term adds at least to the cold sum with j = ``members`` free active experts cold.

    Let M be the heaviest cold expert and D the settled cold sum: the sum is at most D + j M, so the term adds
    at least (factor - j) M - D, and M is at least the settled maximum and the j-th smallest of the active.
    float64 [S, K + 1] from ``cold_us`` [S, E], ``settled`` [E], ``active`` [S, E] and ``members`` [S, K + 1].
    """
    S, E = cold_us.shape
    ranked = np.sort(np.where(active, cold_us, np.inf), axis=1)
    ranked = np.concatenate([np.zeros((S, 1)), ranked], axis=1)
    smallest = np.take_along_axis(ranked, np.clip(members, 0, E), axis=1)
    settled_us = cold_us[:, settled]
    heaviest = np.maximum(smallest, settled_us.max(axis=1, initial=0.0)[:, None])
    left = np.maximum(factor[:, None] - members, 0.0)
    with np.errstate(invalid="ignore"):
        extra = left * heaviest - settled_us.sum(axis=1)[:, None]
    return np.where(np.isfinite(extra), np.maximum(extra, 0.0), 0.0)


def _certain(
    when: FixedCharge,
    members: NDArray[np.int64],
    free_active: NDArray[np.int64],
    free_paying: NDArray[np.int64],
    settled_pays: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Whether a side of a mixed layer surely pays its charge with ``members`` of the free active experts.

    Of ``free_active`` experts, ``free_paying`` have a cost on this side; once a side has more members
    than there are experts without one, some member has a cost.
    """
    if when is FixedCharge.ANY_ACTIVE:
        return np.asarray(settled_pays | (members > free_active - free_paying))
    return np.ones(np.broadcast_shapes(members.shape, settled_pays.shape), dtype=bool)
