"""What each expert's place is worth at a placement: the change of the objective when it alone moves."""

import numpy as np

from placer.solvers.problem import FixedCharge, Floats, Mask, PlacementProblem


def marginal_us(problem: PlacementProblem, hot: Mask) -> Floats:
    """Objective with the expert cold less the objective with it hot, all others as in ``hot``: float [L, E].

    For a hot expert that is what its removal costs, for a cold one what its addition saves; below zero where
    an expert is better cold. Budget and layer bounds play no part.
    """
    _, L, E = problem.shape
    value = np.empty((L, E))
    for layer in range(L):
        members = hot[layer]
        hot_us = np.asarray(problem.hot_us[:, layer], dtype=np.float64)
        cold_us = np.asarray(problem.cold_us[:, layer], dtype=np.float64)
        # Sums over the other experts of each side: float [S, E].
        other_hot = (hot_us @ members)[:, None] - hot_us * members
        other_cold = (cold_us @ ~members)[:, None] - cold_us * ~members
        hot_fixed, cold_fixed = problem.hot_fixed_us[:, layer, None], problem.cold_fixed_us[:, layer, None]
        if problem.heaviest_factor is not None:
            factor = problem.heaviest_factor[:, None]
            other_heaviest = _others_heaviest(cold_us, ~members)
            joined_us = np.maximum(other_cold + cold_us, factor * np.maximum(other_heaviest, cold_us))
            other_cold = np.maximum(other_cold, factor * other_heaviest)
        else:
            joined_us = other_cold + cold_us
        hot_alone = _others_charged(problem.hot_fixed_when, members, hot_us)
        cold_alone = _others_charged(problem.cold_fixed_when, ~members, cold_us)
        hot_joined = np.maximum(hot_alone, _own_charge(problem.hot_fixed_when, hot_us))
        cold_joined = np.maximum(cold_alone, _own_charge(problem.cold_fixed_when, cold_us))
        idle = problem.idle_us[:, layer, None]
        when_hot = np.maximum(
            other_hot + hot_us + hot_fixed * hot_joined,
            other_cold + np.maximum(cold_fixed * cold_alone, idle),
        )
        when_cold = np.maximum(
            other_hot + hot_fixed * hot_alone,
            joined_us + np.maximum(cold_fixed * cold_joined, idle),
        )
        value[layer] = problem.weight @ (when_cold - when_hot) - problem.linear_us[layer]
    return value


def _others_charged(when: FixedCharge, members: Mask, cost_us: Floats) -> Floats:
    """Whether a side pays its fixed cost for its members other than each expert: 0 or 1, float [S, E]."""
    S, E = cost_us.shape
    if when is FixedCharge.ALWAYS:
        return np.ones((S, E))
    if when is FixedCharge.ANY_MEMBER:
        others = np.broadcast_to(members.sum() - members, (S, E))
    else:
        active = (cost_us > 0) & members
        others = active.sum(axis=1)[:, None] - active
    return np.asarray(others > 0, dtype=np.float64)


def _others_heaviest(cost_us: Floats, members: Mask) -> Floats:
    """Largest cost among the members other than each expert: float [S, E]."""
    S, _ = cost_us.shape
    costs = np.concatenate([np.where(members, cost_us, 0.0), np.zeros((S, 1))], axis=1)
    first = costs.argmax(axis=1)
    second = np.partition(costs, -2, axis=1)[:, -2]
    is_first = np.arange(cost_us.shape[1]) == first[:, None]
    return np.where(is_first, second[:, None], costs.max(axis=1)[:, None])


def _own_charge(when: FixedCharge, cost_us: Floats) -> Floats:
    """Whether an expert alone makes its side pay: 0 or 1, float [S, E]."""
    if when is FixedCharge.ANY_ACTIVE:
        return np.asarray(cost_us > 0, dtype=np.float64)
    return np.ones(cost_us.shape)
