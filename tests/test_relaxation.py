"""The proven bound, piece by piece, at multipliers that nobody has tuned: it must hold at all of them."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_problems import optimum_us, problem, problems

from placer.solvers.decided import decide, nothing_decided
from placer.solvers.envelope import step_envelope
from placer.solvers.layer_view import LayerView, by_layer
from placer.solvers.problem import Mask, PlacementProblem
from placer.solvers.relaxation import MixedLayers, Multipliers, pure_layers, relax_mixed, total_bound

seeds = st.integers(0, 2**32 - 1)


def multipliers(view: LayerView, seed: int) -> Multipliers:
    random = np.random.default_rng(seed)
    L, S, _ = view.shape
    tilt = random.normal(0, 20, size=(L, S)) * random.integers(0, 2)
    return Multipliers(float(random.uniform(0, 30)), random.random((L, S)), tilt)


def relaxed(view: LayerView, weights: Multipliers) -> MixedLayers:
    L, _, E = view.shape
    nothing = nothing_decided(L, E)
    return relax_mixed(view, step_envelope(view, nothing), nothing, weights)


def mixed_placements(view: LayerView, layer: int) -> list[Mask]:
    """Every placement of one layer within its mixed bounds."""
    E = view.shape[2]
    masks = (np.array(bits) for bits in product((False, True), repeat=E))
    return [mask for mask in masks if view.fewest[layer] <= mask.sum() <= view.most[layer]]


def priced_us(view: LayerView, layer: int, mask: Mask, price: float) -> float:
    L, _, E = view.shape
    whole = np.zeros((L, E), dtype=bool)
    whole[layer] = mask
    return float(view.cost_us(whole)[layer] + price * view.expert_bytes[layer] * mask.sum())


def test_the_bound_by_hand() -> None:
    # One step, two experts: hot 10 each, cold 30 each, room for one. The optimum is max(10, 30) = 30.
    case = problem([[[10.0, 10.0]]], [[[30.0, 30.0]]], 1)
    view = by_layer(case)
    # Share 1/4 for the hot side: 1/4 * 10 x + 3/4 * 30 (2 - x) = 45 - 20 x; a price of 20 makes x worthless.
    weights = Multipliers(20.0, np.array([[0.25]]), np.zeros((1, 1)))
    floor, _ = relaxed(view, weights).floor_at(20.0)
    # Mixed means one hot: the count alone says that the cold side is 20 longer, of which a share of 1/4 is due.
    assert floor[0] == pytest.approx(45.0 + 0.25 * 20.0)
    # The budget of one byte gives its price back: 50 - 20.
    assert total_bound(floor, 20.0, view.budget_bytes) == pytest.approx(30.0)


@settings(max_examples=60, deadline=None)
@given(case=problems(), seed=seeds)
def test_any_multipliers_bound_the_optimum(case: PlacementProblem, seed: int) -> None:
    best = optimum_us(case)
    if best is None:
        return
    view = by_layer(case)
    weights = multipliers(view, seed)
    floor, _ = relaxed(view, weights).floor_at(weights.price)
    layer = np.minimum(floor, pure_layers(view).best_at(weights.price))
    assert case.constant_us + total_bound(layer, weights.price, view.budget_bytes) <= best + 1e-9 * abs(best)


@settings(max_examples=60, deadline=None)
@given(case=problems(), seed=seeds)
def test_every_mixed_layer_lies_above_its_floor(case: PlacementProblem, seed: int) -> None:
    view = by_layer(case)
    weights = multipliers(view, seed)
    floor, _ = relaxed(view, weights).floor_at(weights.price)
    for layer in range(view.shape[0]):
        for mask in mixed_placements(view, layer):
            assert priced_us(view, layer, mask, weights.price) >= floor[layer] - 1e-9


@settings(max_examples=60, deadline=None)
@given(case=problems(), seed=seeds)
def test_what_is_decided_excludes_nothing_below_the_cutoff(case: PlacementProblem, seed: int) -> None:
    view = by_layer(case)
    L, _, E = view.shape
    weights = multipliers(view, seed)
    mixed = relaxed(view, weights)
    floor, _ = mixed.floor_at(weights.price)
    costs = [
        [(priced_us(view, layer, mask, weights.price), mask) for mask in mixed_placements(view, layer)]
        for layer in range(L)
    ]
    # Between the best placement and the worst, so that something is decided and something is left.
    cutoff = np.array([min((c for c, _ in layer), default=0.0) * 1.05 + 1.0 for layer in costs])
    decided = decide(nothing_decided(L, E), mixed.reduced_at(weights.price), cutoff - floor)
    again = relax_mixed(view, step_envelope(view, decided), decided, weights)
    floor_within, _ = again.floor_at(weights.price)
    for layer in range(L):
        for cost, mask in costs[layer]:
            agrees = not np.any(decided.hot[layer] & ~mask) and not np.any(decided.cold[layer] & mask)
            if agrees:
                assert cost >= floor_within[layer] - 1e-9
            else:
                assert cost >= cutoff[layer] - 1e-9
