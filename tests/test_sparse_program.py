"""The rivals' program: by hand, the true optimum on small problems of every kind, and levels in one program."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from small_problems import optimum_us, problem, problems

from placer.solvers.bench.level_choice import solve_levels
from placer.solvers.bench.rival_cbc import run_cbc
from placer.solvers.bench.sparse_program import sparse_program
from placer.solvers.problem import FixedCharge, PlacementProblem
from placer.solvers.solution import SolverStatus


def test_the_program_by_hand() -> None:
    # One step, one layer, two experts, a cold charge while any active expert is cold; one may be hot.
    case = problem(
        [[[2.0, 3.0]]],
        [[[10.0, 20.0]]],
        1,
        cold_fixed_us=np.array([[7.0]]),
        cold_fixed_when=FixedCharge.ANY_ACTIVE,
    )
    program = sparse_program([case])
    # z, x0, x1, t, q and: budget z >= x0 + x1; t >= 2 x0 + 3 x1; 2 q >= (z - x0) + (z - x1);
    # t + 10 x0 + 20 x1 >= 30 z + 7 q.
    assert program.cost.tolist() == [0, 0, 0, 1, 0]
    assert program.integer.tolist() == [True, True, True, False, True]
    rows = {tuple(row) for row in program.matrix.toarray().tolist()}
    assert rows == {
        (1.0, -1.0, -1.0, 0.0, 0.0),
        (0.0, -2.0, -3.0, 1.0, 0.0),
        (-2.0, 1.0, 1.0, 0.0, 2.0),
        (-30.0, 10.0, 20.0, 1.0, -7.0),
    }
    answer = run_cbc(program, gap=0.0, time_limit_s=20, cpu=False)
    # The second one hot: max(3, 10 + 7).
    assert answer.hot is not None
    assert answer.hot.tolist() == [[False, True]]
    assert answer.bound_us == pytest.approx(17.0)


@settings(max_examples=8, deadline=None)
@given(case=problems(), other=problems())
def test_one_program_for_two_levels_has_the_better_optimum(
    case: PlacementProblem, other: PlacementProblem
) -> None:
    optima = [optimum_us(case), optimum_us(other)]
    answer = run_cbc(sparse_program([case, other]), gap=0.0, time_limit_s=20, cpu=False)
    ours = solve_levels([case, other], gap=0.0, time_limit_s=20)
    if optima == [None, None]:
        assert answer.status is SolverStatus.INFEASIBLE
        assert ours.status is SolverStatus.INFEASIBLE
        return
    best = min(one for one in optima if one is not None)
    assert answer.status is SolverStatus.OPTIMAL
    assert answer.hot is not None
    assert answer.level is not None
    chosen = (case, other)[answer.level]
    assert chosen.is_feasible(answer.hot)
    # CBC's own tolerance on the objective is 1e-5 of it or 1e-10.
    assert chosen.objective_us(answer.hot) == pytest.approx(best, rel=1e-4, abs=1e-3)
    assert ours.objective_us == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert ours.bound_us is not None
    assert ours.bound_us <= best + 1e-6 * (1 + abs(best))


def test_a_level_whose_bound_is_too_high_is_not_chosen() -> None:
    case = problem([[[2.0, 3.0]]], [[[10.0, 20.0]]], 1)
    dear = replace(case, constant_us=100.0)
    solution = solve_levels([dear, case], gap=0.0, time_limit_s=10)
    # The cheap level alone: the second expert hot, max(3, 10).
    assert solution.objective_us == 10.0
    assert solution.bound_us == pytest.approx(10.0)
    assert solution.status is SolverStatus.OPTIMAL


def test_a_level_in_which_no_expert_is_ever_active_pays_nothing() -> None:
    case = problem(
        [[[0.0, 0.0]]],
        [[[0.0, 0.0]]],
        1,
        cold_fixed_us=np.array([[7.0]]),
        cold_fixed_when=FixedCharge.ANY_ACTIVE,
    )
    answer = run_cbc(sparse_program([case]), gap=0.0, time_limit_s=20, cpu=False)
    assert answer.hot is not None
    assert case.objective_us(answer.hot) == 0.0
