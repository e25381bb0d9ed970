"""From any hot set to one that keeps the budget and the layers' bounds."""

import numpy as np

from placer.solvers.layer_view import Float64s, Ints, LayerView
from placer.solvers.problem import Mask


def repaired(view: LayerView, hot: Mask, reduced_us: Float64s) -> Mask:
    """``hot`` (bool [L, E]) with as few changes as it takes to be feasible, those of least harm first.

    ``reduced_us`` [L, E] ranks the experts: the lower, the better hot. The budget must at least hold the
    layers' minima.
    """
    plan = hot.copy()
    least, most = _bounds(view)
    for layer in range(len(plan)):
        order = np.argsort(reduced_us[layer], kind="stable")
        count = int(plan[layer].sum())
        if count < least[layer]:
            plan[layer, order[~plan[layer, order]][: least[layer] - count]] = True
        elif count > most[layer]:
            plan[layer, order[plan[layer, order]][most[layer] :]] = False
    excess = int(view.expert_bytes @ plan.sum(axis=1)) - view.budget_bytes
    if excess > 0:
        harm = np.where(plan, -reduced_us / view.expert_bytes[:, None], np.inf)
        _change(view, plan, np.argsort(harm, axis=None, kind="stable")[: int(plan.sum())], excess, least)
    return plan


def filled(view: LayerView, hot: Mask, reduced_us: Float64s) -> Mask:
    """A feasible ``hot`` (bool [L, E]) plus every expert of negative reduced cost that still fits."""
    plan = hot.copy()
    _, most = _bounds(view)
    spare = view.budget_bytes - int(view.expert_bytes @ plan.sum(axis=1))
    count = plan.sum(axis=1)
    wanted = ~plan & (reduced_us < 0)
    worth = np.where(wanted, reduced_us / view.expert_bytes[:, None], np.inf)
    for flat in np.argsort(worth, axis=None, kind="stable")[: int(wanted.sum())]:
        layer, expert = divmod(int(flat), plan.shape[1])
        if view.expert_bytes[layer] <= spare and count[layer] < most[layer]:
            plan[layer, expert] = True
            count[layer] += 1
            spare -= int(view.expert_bytes[layer])
    return plan


def _bounds(view: LayerView) -> tuple[Ints, Ints]:
    E = view.shape[2]
    return np.where(view.may_be_cold, 0, view.fewest), np.where(view.may_be_hot, E, view.most)


def _change(view: LayerView, plan: Mask, order: Ints, excess: int, least: Ints) -> None:
    count = plan.sum(axis=1)
    for flat in order:
        layer, expert = divmod(int(flat), plan.shape[1])
        if count[layer] > least[layer]:
            plan[layer, expert] = False
            count[layer] -= 1
            excess -= int(view.expert_bytes[layer])
            if excess <= 0:
                return
