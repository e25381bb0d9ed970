"""The interior-point method: its linear algebra is consistent and it closes what a linear program solver closes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from small_problems import problem, problems

from placer.solvers.decided import nothing_decided
from placer.solvers.envelope import step_envelope
from placer.solvers.interior_point import iterates
from placer.solvers.layer_view import by_layer
from placer.solvers.normal_equations import NormalEquations
from placer.solvers.problem import PlacementProblem
from placer.solvers.relaxation import relax_mixed, total_bound
from placer.solvers.relaxed_program import RelaxedProgram, relaxed_program
from placer.solvers.variables import Variables


def program_of(case: PlacementProblem, *, columns: bool, budget: bool) -> RelaxedProgram:
    view = by_layer(case)
    L, _, E = view.shape
    nothing = nothing_decided(L, E)
    return relaxed_program(
        view,
        nothing,
        envelope=step_envelope(view, nothing) if columns else None,
        price=None if budget else 3.0,
        layers=view.fewest <= view.most,
        budget_bytes=view.budget_bytes,
    )


@settings(max_examples=60, deadline=None)
@given(case=problems(), columns=st.booleans(), budget=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_the_maps_are_transposed_to_each_other(
    case: PlacementProblem, columns: bool, budget: bool, seed: int
) -> None:
    space = Variables(program_of(case, columns=columns, budget=budget))
    random = np.random.default_rng(seed)
    v, w = random.normal(size=space.n), random.normal(size=space.n)
    rows = space.image(w)
    # <A v, A w> = <v, A^T A w>
    image = space.image(v)
    inner = float(
        (image.main * rows.main).sum() + (image.total * rows.total).sum() + image.budget * rows.budget
    )
    assert inner == pytest.approx(float(v @ space.transposed(rows)), rel=1e-9, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(case=problems(), columns=st.booleans(), budget=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_the_normal_equations_are_solved(
    case: PlacementProblem, columns: bool, budget: bool, seed: int
) -> None:
    # Small problems have more rows than experts as often as fewer: both factorisations are met.
    space = Variables(program_of(case, columns=columns, budget=budget))
    random = np.random.default_rng(seed)
    theta = random.uniform(0.5, 2.0, size=space.n)
    right = space.image(theta * space.transposed(space.image(random.normal(size=space.n))))
    solved = NormalEquations(space, theta).solve(right)
    again = space.image(theta * space.transposed(solved))
    scale = 1.0 + right.largest()
    assert (again - right).largest() <= 1e-4 * scale


def test_it_closes_the_linear_program() -> None:
    random = np.random.default_rng(5)
    S, L, E = 6, 3, 10
    hot, cold = random.uniform(1, 10, size=(S, L, E)), random.uniform(5, 30, size=(S, L, E))
    case = problem(hot, cold, 14)
    view = by_layer(case)
    nothing = nothing_decided(L, E)
    envelope = step_envelope(view, nothing)
    program = program_of(case, columns=False, budget=True)
    best = -np.inf
    for point in iterates(program, price=None):
        price = point.multipliers.price
        floor, _ = relax_mixed(view, envelope, nothing, point.multipliers).floor_at(price)
        best = max(best, total_bound(floor, price, view.budget_bytes))

    # The same relaxation as scipy states it: columns x [L, E], then t [S, L]; both sides below t; the budget.
    rows, limits = [], []
    for s in range(S):
        for layer in range(L):
            for side, limit in ((hot[s, layer], 0.0), (-cold[s, layer], -float(cold[s, layer].sum()))):
                row = np.zeros(L * E + S * L)
                row[layer * E : (layer + 1) * E] = side
                row[L * E + s * L + layer] = -1.0
                rows.append(row)
                limits.append(limit)
    rows.append(np.concatenate([np.ones(L * E), np.zeros(S * L)]))
    limits.append(14.0)
    cost = np.concatenate([np.zeros(L * E), np.full(S * L, 1.0 / S)])
    bounds = [(0, 1)] * (L * E) + [(0, None)] * (S * L)
    relaxation = linprog(cost, A_ub=np.array(rows), b_ub=np.array(limits), bounds=bounds).fun
    # Counting may lift the bound above the linear program, never above what it can be worth here.
    assert relaxation * (1 - 1e-6) <= best <= relaxation * 1.05
