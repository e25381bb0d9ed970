"""What moving one expert is worth, by hand and against the objective itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_problems import problem, problems

from placer.solvers.marginal import marginal_us
from placer.solvers.problem import FixedCharge, PlacementProblem


def test_a_hot_expert_is_worth_what_its_removal_costs() -> None:
    # One step, three experts; 0 is hot. Cold side 30 + 20 = 50, hot side 1.
    case = problem([[[1, 2, 3]]], [[[40, 30, 20]]], budget_bytes=1)
    hot = np.array([[True, False, False]])
    # Without 0: 90 - 50 = 40. With 1 hot too: 50 - 20 = 30. With 2 hot too: 50 - 30 = 20.
    np.testing.assert_allclose(marginal_us(case, hot), [[40.0, 30.0, 20.0]])


def test_where_the_hot_side_is_the_longer_one_a_hot_expert_has_a_negative_worth() -> None:
    # Hot side 50 + 10 = 60 against a cold side of 5: without expert 0 the layer takes max(10, 5 + 20) = 25.
    case = problem([[[50, 10, 0]]], [[[20, 8, 5]]], budget_bytes=3)
    assert marginal_us(case, np.array([[True, True, False]]))[0, 0] == pytest.approx(25 - 60)


def test_the_first_hot_expert_pays_the_fixed_cost_of_the_gpu_part() -> None:
    case = problem(
        [[[1, 1]]],
        [[[10, 10]]],
        budget_bytes=2,
        hot_fixed_us=np.array([[12.0]]),
        hot_fixed_when=FixedCharge.ANY_MEMBER,
    )
    # None hot: 20. Expert 0 hot: max(1 + 12, 10) = 13.
    np.testing.assert_allclose(marginal_us(case, np.array([[False, False]])), [[7.0, 7.0]])


def test_the_last_expert_to_turn_hot_saves_no_more_than_leaves_the_idle_cost() -> None:
    # All hot: max(1 + 1, idle 8) = 8. Either expert cold: 15 + 10.
    case = problem(
        [[[1, 1]]],
        [[[10, 10]]],
        budget_bytes=2,
        cold_fixed_us=np.array([[15.0]]),
        cold_fixed_when=FixedCharge.ANY_MEMBER,
        cold_idle_us=np.array([[8.0]]),
    )
    assert case.objective_us(np.array([[True, True]])) == pytest.approx(8.0)
    np.testing.assert_allclose(marginal_us(case, np.array([[True, True]])), [[17.0, 17.0]])


def test_the_heaviest_cold_expert_is_worth_more_than_its_own_time() -> None:
    # Cold side max(40 + 30, 2 x 40) = 80 with 0 and 1 cold; without 0 it is 2 x 30, without 1 still 80.
    case = problem([[[1, 1, 1]]], [[[40, 30, 20]]], budget_bytes=1, heaviest_factor=np.array([2.0]))
    hot = np.array([[False, False, True]])
    np.testing.assert_allclose(marginal_us(case, hot), [[20.0, 0.0, 90.0 - 80.0]])


@given(problems(), st.integers(0, 2**32 - 1))
def test_it_is_the_difference_of_two_objectives(case: PlacementProblem, seed: int) -> None:
    _, L, E = case.shape
    hot = np.random.default_rng(seed).random((L, E)) < 0.5
    value = marginal_us(case, hot)
    for layer, expert in np.ndindex(L, E):
        with_it, without = hot.copy(), hot.copy()
        with_it[layer, expert], without[layer, expert] = True, False
        difference = case.objective_us(without) - case.objective_us(with_it)
        assert value[layer, expert] == pytest.approx(difference, abs=1e-6)
