"""The exact ILP: the same optimum as trying every placement, and a status that is told apart."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from small_problems import optimum_us, problem, problems

from placer.solvers.ilp import solve_ilp, write_lp
from placer.solvers.problem import FixedCharge, PlacementProblem
from placer.solvers.solution import SolverStatus
from placer.solvers.structured import solve_structured

SOLVERS: tuple[Literal["highs", "cbc"], ...] = ("highs", "cbc")
GAP = 1e-4


@settings(max_examples=25, deadline=None)
@given(case=problems())
def test_all_three_solvers_agree_within_their_gaps(case: PlacementProblem) -> None:
    best = optimum_us(case)
    solutions = [solve_ilp(case, solver=solver, gap=GAP, time_limit_s=30) for solver in SOLVERS]
    solutions.append(solve_structured(case, gap=GAP, time_limit_s=30))
    for solution in solutions:
        if best is None:
            assert solution.status is SolverStatus.INFEASIBLE
            continue
        assert solution.status is SolverStatus.OPTIMAL
        assert solution.hot is not None
        assert case.is_feasible(solution.hot)
        size = abs(best - case.constant_us)
        assert solution.objective_us == pytest.approx(best, abs=2 * GAP * size + 1e-3)
        assert solution.bound_us is not None
        assert solution.bound_us <= best + 1e-6 * (1 + abs(best))


@pytest.mark.parametrize("solver", SOLVERS)
def test_minima_beyond_the_budget_are_infeasible(solver: Literal["highs", "cbc"]) -> None:
    case = problem([[[1.0, 1.0]]], [[[2.0, 2.0]]], 1, min_hot=np.array([2]))
    solution = solve_ilp(case, solver=solver, gap=GAP, time_limit_s=10)
    assert solution.status is SolverStatus.INFEASIBLE
    assert solution.hot is None
    assert solution.objective_us is None


@pytest.mark.parametrize("solver", SOLVERS)
def test_out_of_time_is_never_a_plan_without_a_solution(solver: Literal["highs", "cbc"]) -> None:
    random = np.random.default_rng(3)
    costs = random.uniform(10, 100, size=(24, 12, 48))
    case = problem(
        costs,
        costs[:, :, ::-1],
        200,
        cold_fixed_us=np.full((24, 12), 80.0),
        cold_fixed_when=FixedCharge.ANY_ACTIVE,
    )
    solution = solve_ilp(case, solver=solver, gap=0.0, time_limit_s=0.3)
    if solution.hot is None:
        assert solution.status is SolverStatus.NO_SOLUTION
        assert solution.objective_us is None
    else:
        # A fast machine may even prove it in time.
        assert solution.status in (SolverStatus.TIME_LIMIT, SolverStatus.OPTIMAL)
        assert case.is_feasible(solution.hot)
        assert solution.bound_us is None or solution.bound_us <= (solution.objective_us or 0.0)


def test_the_program_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "problem.lp"
    write_lp(problem([[[1.0]]], [[[2.0]]], 1), path)
    assert "Minimize" in path.read_text()
