"""A lower bound in milliseconds: each layer's max() replaced by one mixture of its sides, the budget by a price."""

import numpy as np
from numpy.typing import NDArray

from placer.solvers.problem import FixedCharge, Floats, PlacementProblem

_SHARES = np.linspace(0.0, 1.0, 9)[:, None]
"""Shares of the hot side in a layer's mixture that are tried: float [9, 1]."""
_PRICES = 40


def quick_bound_us(problem: PlacementProblem) -> float:
    """What no placement has an objective below, constant included; the heaviest cold expert's term is left out.

    max(h, c) is at least λh + (1 - λ)c for any λ in [0, 1], and with one λ for all steps of a layer the mixture is a
    sum over its experts; a price p on bytes takes the budget's place (Lagrange). So for every p, with H and C an
    expert's weighted costs on either side, d what the plan's linear term adds and b its bytes,

        sum over layers of max over λ of [charges + sum over experts of min(λH + d + pb, (1 - λ)C)]  -  p · budget

    is a bound, concave in p: the best price is found by ternary search. The charges that count are those that are
    always paid, and those below zero; they are mixed alike.
    """
    S, L, E = problem.shape
    hot_us, cold_us = (
        (problem.weight @ side.reshape(S, L * E)).reshape(L, E) for side in (problem.hot_us, problem.cold_us)
    )
    charges = _SHARES * _least_us(problem, problem.hot_fixed_us, problem.hot_fixed_when)
    charges = charges + (1.0 - _SHARES) * _least_us(problem, problem.cold_fixed_us, problem.cold_fixed_when)
    shares = _SHARES[:, :, None]
    expert_bytes = problem.expert_bytes[:, None].astype(np.float64)

    def bound_us(price: float) -> float:
        hot = shares * hot_us + problem.linear_us + price * expert_bytes
        layers = (charges + np.minimum(hot, (1.0 - shares) * cold_us).sum(axis=2)).max(axis=0)
        return float(layers.sum()) - price * problem.budget_bytes

    low = 0.0
    # Beyond this price no expert is worth its bytes.
    high = float(np.max((cold_us - problem.linear_us) / expert_bytes, initial=0.0))
    best = max(bound_us(low), bound_us(high))
    for _ in range(_PRICES):
        first, second = (low + (high - low) * share for share in (1 / 3, 2 / 3))
        at_first, at_second = bound_us(first), bound_us(second)
        best = max(best, at_first, at_second)
        low, high = (first, high) if at_first < at_second else (low, second)
    return problem.constant_us + best


def _least_us(problem: PlacementProblem, fixed_us: Floats, when: FixedCharge) -> NDArray[np.float64]:
    """Weighted sum over steps of what a side's charge (float [S, L]) adds at least: float [L]."""
    surely = fixed_us if when is FixedCharge.ALWAYS else np.minimum(fixed_us, 0.0)
    return np.asarray(problem.weight @ surely)
