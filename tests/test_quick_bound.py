"""The bound in milliseconds: exact where one side decides, valid everywhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from small_problems import optimum_us, problem, problems

from placer.solvers.problem import PlacementProblem
from placer.solvers.quick_bound import quick_bound_us
from placer.solvers.structured import solve_structured


def test_where_the_cold_side_decides_it_is_the_optimum() -> None:
    # Room for two of four: 10 and 20 stay cold.
    assert quick_bound_us(problem([[[0.0] * 4]], [[[10.0, 90.0, 20.0, 80.0]]], 2)) == pytest.approx(30.0)


def test_where_both_sides_meet_it_is_their_mixture() -> None:
    # Everything fits; half of each side's 100 is the best mixture, and two experts on each side reach it.
    assert quick_bound_us(problem([[[25.0] * 4]], [[[25.0] * 4]], 4)) == pytest.approx(50.0)


@settings(max_examples=100, deadline=None)
@given(problems())
def test_no_placement_is_below_it(case: PlacementProblem) -> None:
    best_us = optimum_us(case)
    if best_us is not None:
        assert quick_bound_us(case) <= best_us + 1e-6 * max(1.0, abs(best_us))


@settings(max_examples=40, deadline=None)
@given(problems())
def test_a_cutoff_ends_the_solve_only_where_no_plan_is_below_it(case: PlacementProblem) -> None:
    best_us = optimum_us(case)
    if best_us is None:
        return
    for cutoff_us in (best_us - 1.0, best_us + 1.0):
        found = solve_structured(
            case, gap=1e-6, cutoff_us=cutoff_us, warm_starts=(np.zeros(case.shape[1:], bool),)
        )
        assert found.bound_us is not None
        assert found.objective_us is not None
        assert found.bound_us <= best_us + 1e-6 * max(1.0, abs(best_us))
        assert found.bound_us >= min(cutoff_us, best_us) - 1e-5 * max(1.0, abs(best_us))
        if cutoff_us > best_us:
            assert found.objective_us == pytest.approx(best_us, rel=1e-5, abs=1e-5)
