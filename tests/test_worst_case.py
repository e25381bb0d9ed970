"""The worst of several problems: never below the bound, near the best that trying everything finds."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_problems import optimum_us, problem, problems

from placer.solvers.problem import PlacementProblem
from placer.solvers.worst_case import solve_worst_case


def least_worst(cases: list[PlacementProblem], scale: list[float]) -> float:
    """The least largest value over every feasible placement, by trying all."""
    _, L, E = cases[0].shape
    masks = (np.array(bits).reshape(L, E) for bits in product((False, True), repeat=L * E))
    return min(
        max(case.objective_us(mask) / each for case, each in zip(cases, scale, strict=True))
        for mask in masks
        if cases[0].is_feasible(mask)
    )


def test_one_place_goes_to_the_domain_that_is_worse_off() -> None:
    """One step each. Code needs expert 0 (100 µs cold), prose expert 1 (60 µs cold); one may be hot (at 10 µs)."""
    code = problem([[[10, 0]]], [[[100, 0]]], 1)
    prose = problem([[[0, 10]]], [[[0, 60]]], 1)
    found = solve_worst_case(
        {"code": code, "prose": prose}, {"code": 1.0, "prose": 1.0}, gap=0.001, time_limit_s=5.0
    )
    assert found.hot.tolist() == [[True, False]]
    assert found.values == {"code": 10.0, "prose": 60.0}
    assert found.value == 60.0
    # Weights prove as much as a mixture of both plans reaches: code's place in a share p of the time makes code
    # 100 - 90 p and prose 10 + 50 p, equal at p = 9 / 14.
    assert found.bound == pytest.approx(100 - 90 * 9 / 14, rel=0.01)


def test_regret_looks_at_each_domains_own_best() -> None:
    """Code at 100 against its best of 50 is worse off than prose at 60 against its best of 40: 2 against 1.5."""
    code = problem([[[50, 0]]], [[[100, 0]]], 1)
    prose = problem([[[0, 40]]], [[[0, 60]]], 1)
    found = solve_worst_case(
        {"code": code, "prose": prose}, {"code": 50.0, "prose": 40.0}, gap=0.001, time_limit_s=5.0
    )
    assert found.hot.tolist() == [[True, False]]
    assert found.values == {"code": 1.0, "prose": 1.5}


def test_domains_that_agree_are_solved_to_the_gap() -> None:
    """Both need expert 0 most: the plan is best for each, so the bound meets the value."""
    code = problem([[[10, 10]]], [[[100, 30]]], 1)
    prose = problem([[[10, 10]]], [[[80, 20]]], 1)
    found = solve_worst_case(
        {"code": code, "prose": prose}, {"code": 1.0, "prose": 1.0}, gap=0.001, time_limit_s=5.0
    )
    assert found.value == pytest.approx(30.0)
    assert found.gap <= 0.001


@settings(max_examples=12, deadline=None)
@given(first=problems(), seed=st.integers(0, 2**32 - 1), scale=st.floats(0.2, 5.0))
def test_the_bound_is_never_above_the_best_and_the_plan_is_feasible(
    first: PlacementProblem, seed: int, scale: float
) -> None:
    if optimum_us(first) is None:
        return
    random = np.random.default_rng(seed)
    second = replace(
        first,
        hot_us=first.hot_us * random.uniform(0.3, 3.0, size=first.hot_us.shape),
        cold_us=first.cold_us * random.uniform(0.3, 3.0, size=first.cold_us.shape),
        constant_us=first.constant_us + 100.0,
    )
    best = least_worst([first, second], [1.0, scale])
    found = solve_worst_case(
        {"a": first, "b": second}, {"a": 1.0, "b": scale}, gap=0.001, time_limit_s=5.0, seed=1
    )
    assert first.is_feasible(found.hot)
    assert found.bound <= best + 1e-6 * abs(best)
    assert found.value >= best - 1e-6 * abs(best)
    assert found.value == pytest.approx(
        max(first.objective_us(found.hot), second.objective_us(found.hot) / scale)
    )
    # A single problem's own optimum is a bound, too.
    single = optimum_us(first)
    assert single is not None
    assert found.value >= single - 1e-6 * abs(single)


def test_a_warm_start_is_never_made_worse() -> None:
    code = problem([[[10, 0]]], [[[100, 0]]], 1)
    start = np.array([[True, False]])
    found = solve_worst_case({"code": code}, {"code": 1.0}, gap=0.5, time_limit_s=1.0, warm_starts=[start])
    assert found.value == 10.0


def test_a_scale_must_be_positive() -> None:
    code = problem([[[10, 0]]], [[[100, 0]]], 1)
    with pytest.raises(ValueError, match="positive scales"):
        solve_worst_case({"code": code}, {"code": 0.0}, gap=0.1, time_limit_s=1.0)
