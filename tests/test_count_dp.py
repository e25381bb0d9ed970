"""The count dynamic program: right by hand, and the reference for sizes that nobody can enumerate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_problems import optimum_us, problem

from placer.solvers.count_dp import solve_count_dp
from placer.solvers.problem import FixedCharge, PlacementProblem
from placer.solvers.solution import SolverStatus
from placer.solvers.structured import solve_structured


def alike(layers: int, experts: int, seed: int, hot: FixedCharge, cold: FixedCharge) -> PlacementProblem:
    """Experts alike within a layer, charges large against them, two byte sizes."""
    random = np.random.default_rng(seed)
    ones = np.ones((3, layers, experts))
    expert_bytes = random.choice([2, 3], size=layers)
    return problem(
        ones * random.uniform(1, 4, size=(3, layers, 1)),
        ones * random.uniform(5, 30, size=(3, layers, 1)),
        int(0.7 * expert_bytes.sum() * experts),
        hot_fixed_us=random.uniform(0, 60, size=(3, layers)),
        cold_fixed_us=random.uniform(0, 120, size=(3, layers)),
        hot_fixed_when=hot,
        cold_fixed_when=cold,
        expert_bytes=expert_bytes,
        linear_us=np.ones((layers, experts)) * random.uniform(-2, 2, size=(layers, 1)),
    )


def test_a_whole_layer_beats_two_halves_by_hand() -> None:
    # Cold experts cost 10 and their side 100 while it has any: 220 at the start, and a layer made all hot saves
    # 120 - 2, while one expert of each layer saves 10 + 10.
    case = problem(
        np.ones((1, 2, 2)),
        np.full((1, 2, 2), 10.0),
        2,
        cold_fixed_us=np.full((1, 2), 100.0),
        cold_fixed_when=FixedCharge.ANY_MEMBER,
    )
    solution = solve_count_dp(case)
    assert solution.hot is not None
    assert sorted(solution.hot.sum(axis=1).tolist()) == [0, 2]
    assert solution.objective_us == pytest.approx(122.0)


def test_experts_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="differ"):
        solve_count_dp(problem([[[1.0, 2.0]]], [[[1.0, 1.0]]], 1))


def test_minima_beyond_the_budget_are_infeasible() -> None:
    case = problem(np.ones((1, 1, 3)), np.ones((1, 1, 3)), 1, min_hot=np.array([2]))
    assert solve_count_dp(case).status is SolverStatus.INFEASIBLE


charges = st.sampled_from(list(FixedCharge))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), hot=charges, cold=charges)
def test_it_finds_what_trying_everything_finds(seed: int, hot: FixedCharge, cold: FixedCharge) -> None:
    case = alike(2, 4, seed, hot, cold)
    assert solve_count_dp(case).objective_us == pytest.approx(optimum_us(case))


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6), hot=charges, cold=charges)
def test_the_default_solver_brackets_it_at_size(seed: int, hot: FixedCharge, cold: FixedCharge) -> None:
    case = alike(30, 24, seed, hot, cold)
    best = solve_count_dp(case).objective_us
    assert best is not None
    solution = solve_structured(case, gap=5e-3, time_limit_s=2)
    assert solution.objective_us is not None
    assert solution.bound_us is not None
    assert solution.bound_us <= best * (1 + 1e-9)
    # One layer in thirty may end between two whole states; that is all the price of bytes cannot see.
    assert best * (1 - 1e-9) <= solution.objective_us <= best * 1.005
