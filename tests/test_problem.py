"""The placement problem's exact objective, by hand."""

import numpy as np
import pytest
from small_problems import everything_cold, problem

from placer.solvers.problem import FixedCharge

# One step, one layer, three experts; the third has no rows.
HOT, COLD = [[[5.0, 6.0, 0.0]]], [[[50.0, 70.0, 0.0]]]


def mask(*hot: bool) -> np.ndarray:
    return np.array([hot])


def test_a_layer_step_is_the_longer_side() -> None:
    case = problem(HOT, COLD, 3)
    assert case.objective_us(mask(False, False, False)) == 120.0
    assert case.objective_us(mask(False, True, False)) == 50.0
    assert case.objective_us(mask(True, True, False)) == 11.0


@pytest.mark.parametrize(
    ("when", "none", "idle", "busy"),
    [
        # Cold 120, 120 and 70; the hot side pays 200 always, with any member, or with an active one.
        (FixedCharge.ALWAYS, 200.0, 200.0, 205.0),
        (FixedCharge.ANY_MEMBER, 120.0, 200.0, 205.0),
        (FixedCharge.ANY_ACTIVE, 120.0, 120.0, 205.0),
    ],
)
def test_when_a_side_pays_its_fixed_cost(when: FixedCharge, none: float, idle: float, busy: float) -> None:
    case = problem(HOT, COLD, 3, hot_fixed_us=np.array([[200.0]]), hot_fixed_when=when)
    assert case.objective_us(mask(False, False, False)) == none
    assert case.objective_us(mask(False, False, True)) == idle
    assert case.objective_us(mask(True, False, False)) == busy


def test_weights_constant_and_linear_terms_add_up() -> None:
    case = problem(
        HOT * 2,
        COLD * 2,
        3,
        weight=np.array([0.5, 2.0]),
        linear_us=np.array([[0.0, -7.0, 3.0]]),
        constant_us=1000.0,
    )
    assert case.objective_us(mask(False, True, True)) == 1000.0 + 2.5 * 50.0 - 7.0 + 3.0


def test_the_heaviest_cold_expert_can_be_the_cold_side() -> None:
    case = problem(HOT, COLD, 3, heaviest_factor=np.array([1.5]), cold_fixed_us=np.array([[10.0]]))
    # All cold: the sum of 120 is longer than 1.5 x 70. One cold: 1.5 times its 50, its 70.
    assert case.objective_us(mask(False, False, False)) == 130.0
    assert case.objective_us(mask(False, True, False)) == 85.0
    assert case.objective_us(mask(True, False, False)) == 115.0
    assert case.objective_us(mask(True, True, False)) == 11.0


def test_feasible_means_budget_and_layer_bounds() -> None:
    case = problem(HOT, COLD, 5, expert_bytes=np.array([2]), min_hot=np.array([1]), max_hot=np.array([2]))
    assert not case.is_feasible(everything_cold(case))
    assert case.is_feasible(mask(True, True, False))
    assert case.used_bytes(mask(True, True, False)) == 4
    assert not case.is_feasible(mask(True, True, True))


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="weight has shape"):
        problem(HOT, COLD, 1, weight=np.ones(2))
