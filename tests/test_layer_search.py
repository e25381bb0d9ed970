"""Search inside layers: its tables state exact costs, its choice keeps the budget, an exact layer is exact."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_problems import optimum_us, problem, problems

from placer.solvers.deadline import Deadline
from placer.solvers.decided import Decided, nothing_decided
from placer.solvers.exact_layer import solve_layer
from placer.solvers.ilp import solve_ilp
from placer.solvers.layer_pool import LayerPool
from placer.solvers.layer_view import by_layer
from placer.solvers.problem import PlacementProblem
from placer.solvers.repair import filled, repaired
from placer.solvers.side_sums import side_sums

seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=80, deadline=None)
@given(case=problems(), seed=seeds)
def test_the_tables_cost_what_the_problem_costs(case: PlacementProblem, seed: int) -> None:
    view = by_layer(case)
    L, _, E = view.shape
    hot = np.random.default_rng(seed).random((L, E)) < 0.5
    mixed = hot.any(axis=1) & ~hot.all(axis=1)
    sums = side_sums(view)
    linear = np.where(hot, sums.linear_us[:, :E], 0.0).sum(axis=1)
    ranks = sums.cold_ranks(hot)
    heaviest = None if ranks is None else ranks.first_us
    found = sums.cost_us(sums.of(hot), np.arange(L), heaviest) + linear + sums.constant_us
    assert found[mixed] == pytest.approx(view.cost_us(hot)[mixed], rel=1e-4, abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(case=problems(), seed=seeds)
def test_an_exchange_costs_what_the_exchanged_placement_costs(case: PlacementProblem, seed: int) -> None:
    view = by_layer(case)
    L, _, E = view.shape
    hot = np.random.default_rng(seed).random((L, E)) < 0.5
    hot[:, 0], hot[:, 1] = True, False
    sums = side_sums(view)
    grid = np.arange(L)[:, None]
    before, heavy = sums.cold_ranks(hot), None
    if before is not None and sums.heavy_us is not None:
        heavy = sums.heavy_us[grid, [[0]]], before.without(np.full((L, 1), 1))
    table = sums.exchange_cost_us(sums.of(hot), sums.expert[grid, [[0]]], sums.expert[grid, [[1]]], heavy)
    hot[:, 0], hot[:, 1] = False, True
    after = sums.cold_ranks(hot)
    cost = sums.cost_us(sums.of(hot), np.arange(L), None if after is None else after.first_us)
    assert table[:, 0, 0] == pytest.approx(cost, rel=1e-4, abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(case=problems(), price=st.floats(0, 50))
def test_a_pool_of_everything_chooses_the_optimum(case: PlacementProblem, price: float) -> None:
    best = optimum_us(case)
    view = by_layer(case)
    L, _, E = view.shape
    pool = LayerPool(view)
    for bits in product((False, True), repeat=E):
        masks = np.tile(np.array(bits), (L, 1))
        allowed = np.flatnonzero((sum(bits) >= case.min_hot) & (sum(bits) <= case.max_hot))
        pool.add(allowed, masks[allowed], view.cost_us(masks)[allowed])
    if np.any(case.min_hot > case.max_hot):
        return
    plan = pool.choose(price)
    if best is None:
        assert plan is None
    else:
        assert plan is not None
        assert case.is_feasible(plan)
        assert case.objective_us(plan) == pytest.approx(best)


@settings(max_examples=60, deadline=None)
@given(case=problems(), seed=seeds)
def test_repair_makes_any_placement_feasible(case: PlacementProblem, seed: int) -> None:
    if optimum_us(case) is None:
        return
    view = by_layer(case)
    L, _, E = view.shape
    random = np.random.default_rng(seed)
    reduced = random.normal(size=(L, E))
    plan = repaired(view, random.random((L, E)) < 0.7, reduced)
    assert case.is_feasible(plan)
    assert case.is_feasible(filled(view, plan, reduced))


@settings(max_examples=60, deadline=None)
@given(case=problems(), price=st.floats(0, 50))
def test_an_exact_layer_is_the_best_mixed_placement(case: PlacementProblem, price: float) -> None:
    view = by_layer(case)
    L, _, E = view.shape
    candidates = [
        np.array(bits)
        for bits in product((False, True), repeat=E)
        if view.fewest[0] <= sum(bits) <= view.most[0]
    ]
    if not candidates:
        return
    costs = []
    for mask in candidates:
        whole = np.zeros((L, E), dtype=bool)
        whole[0] = mask
        costs.append(float(view.cost_us(whole)[0] + price * view.expert_bytes[0] * mask.sum()))
    # A thread of its own, as in a solve: HiGHS counts its threads per calling thread.
    with ThreadPoolExecutor(max_workers=1) as worker:
        exact = worker.submit(
            solve_layer,
            view,
            0,
            nothing_decided(L, E),
            price,
            candidates[-1],
            gap_us=1e-6,
            nodes=100_000,
            deadline=Deadline(20),
            called_off=threading.Event(),
        ).result()
    assert exact.closed
    assert exact.hot is not None
    assert exact.floor_us == pytest.approx(min(costs), rel=1e-4, abs=1e-3)
    assert exact.floor_us <= min(costs) + 1e-9
    assert costs[[m.tolist() for m in candidates].index(exact.hot.tolist())] == pytest.approx(
        min(costs), rel=1e-5, abs=1e-4
    )


def test_work_that_was_called_off_claims_nothing() -> None:
    view = by_layer(problem([[[1.0, 2.0]]], [[[3.0, 4.0]]], 1))
    called_off = threading.Event()
    called_off.set()
    exact = solve_layer(
        view,
        0,
        nothing_decided(1, 2),
        0.0,
        np.array([True, False]),
        gap_us=0.0,
        nodes=1,
        deadline=Deadline(20),
        called_off=called_off,
    )
    assert (exact.floor_us, exact.hot, exact.closed) == (-np.inf, None, False)


def test_a_layer_with_nothing_open_is_its_one_placement() -> None:
    # Hot 1 and 30 against cold 40 and 7 with linear terms of -50: max(1, 7) - 50.
    case = problem([[[1.0, 30.0]]], [[[40.0, 7.0]]], 1, linear_us=np.array([[-50.0, 0.0]]))
    placement = np.array([True, False])
    exact = solve_layer(
        by_layer(case),
        0,
        Decided(placement[None], ~placement[None]),
        0.0,
        placement,
        gap_us=0.0,
        nodes=1,
        deadline=Deadline(20),
        called_off=threading.Event(),
    )
    assert exact.floor_us == pytest.approx(-43.0, abs=1e-3)
    assert exact.floor_us <= -43.0


def test_an_engine_that_fails_claims_nothing() -> None:
    case = problem([[[1.0, 2.0]]], [[[3.0, 4.0]]], 1)
    # Solving with HiGHS's default threads first makes it refuse one thread in the same calling thread.
    with ThreadPoolExecutor(max_workers=1) as worker:
        worker.submit(solve_ilp, case, solver="highs", gap=0.0, time_limit_s=10).result()
        exact = worker.submit(
            solve_layer,
            by_layer(case),
            0,
            nothing_decided(1, 2),
            0.0,
            np.array([True, False]),
            gap_us=0.0,
            nodes=10,
            deadline=Deadline(20),
            called_off=threading.Event(),
        ).result()
    assert exact.floor_us <= 3.0
