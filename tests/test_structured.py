"""The default solver: optimal where a reader can check, its bound valid everywhere."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_data import SHARED_DATA, needs_shared_data
from small_problems import optimum_us, problem, problems

from placer.solvers.annealing import AnnealingLength
from placer.solvers.bench.instance_file import read_instance
from placer.solvers.problem import FixedCharge, PlacementProblem
from placer.solvers.solution import Solution, SolverStatus
from placer.solvers.structured import solve_structured

ROUNDING = 1e-6


def test_where_the_cold_side_binds_the_optimum_is_a_sort() -> None:
    cold = np.array([[[10.0, 90.0, 20.0, 80.0], [70.0, 5.0, 60.0, 15.0]]])
    solution = solve_structured(problem(cold * 0.01, cold, 4), gap=1e-6)
    assert solution.status is SolverStatus.OPTIMAL
    assert solution.hot is not None
    assert solution.hot.tolist() == [[False, True, False, True], [True, False, True, False]]
    # The first layer keeps 10 + 20 cold, the second 5 + 15.
    assert solution.objective_us == pytest.approx(50.0)


def test_the_maximum_makes_the_busiest_experts_the_wrong_ones() -> None:
    # Hot costs are as high as cold ones: two experts of 60 on the GPU take as long as all four cold ones did
    # halved, and the best split is even, one large and one small on either side.
    costs = [[[60.0, 60.0, 40.0, 40.0]]]
    solution = solve_structured(problem(costs, costs, 2), gap=1e-6)
    assert solution.objective_us == pytest.approx(100.0)
    assert solution.hot is not None
    assert sorted(np.array(costs)[0, 0][solution.hot[0]].tolist()) == [40.0, 60.0]


def test_a_fixed_cost_that_vanishes_is_worth_a_whole_layer() -> None:
    # Submitting to the CPU costs 100 while it holds any active expert; two layers, room for two experts.
    cold = [[[10.0, 10.0], [11.0, 11.0]]]
    hot = [[[1.0, 1.0], [1.0, 1.0]]]
    case = problem(hot, cold, 2, cold_fixed_us=np.full((1, 2), 100.0), cold_fixed_when=FixedCharge.ANY_ACTIVE)
    solution = solve_structured(case, gap=1e-6)
    assert solution.hot is not None
    assert solution.hot.tolist() == [[False, False], [True, True]]
    assert solution.objective_us == pytest.approx(120.0 + 2.0)


def test_a_gpu_part_that_is_skipped_is_worth_leaving_a_layer_cold() -> None:
    case = problem(
        [[[1.0, 1.0]]],
        [[[10.0, 10.0]]],
        2,
        hot_fixed_us=np.array([[50.0]]),
        hot_fixed_when=FixedCharge.ANY_MEMBER,
    )
    solution = solve_structured(case, gap=1e-6)
    assert solution.hot is not None
    assert not solution.hot.any()
    assert solution.objective_us == pytest.approx(20.0)


def test_large_experts_give_way_to_several_small_ones() -> None:
    # Three bytes: one expert of the first layer saves 100, three of the second save 40 each.
    cold = [[[100.0, 100.0, 100.0], [40.0, 40.0, 40.0]]]
    case = problem(np.zeros((1, 2, 3)), cold, 3, expert_bytes=np.array([3, 1]))
    solution = solve_structured(case, gap=1e-6)
    assert solution.objective_us == pytest.approx(300.0)
    assert solution.hot is not None
    assert solution.hot.sum(axis=1).tolist() == [0, 3]


def test_minima_beyond_the_budget_are_infeasible() -> None:
    case = problem([[[1.0, 1.0]]], [[[2.0, 2.0]]], 1, min_hot=np.array([2]))
    solution = solve_structured(case)
    assert solution.status is SolverStatus.INFEASIBLE
    assert solution.hot is None


@settings(max_examples=40, deadline=None)
@given(case=problems(), prove=st.booleans())
def test_its_own_bound_holds_without_the_integer_program(case: PlacementProblem, prove: bool) -> None:
    best = optimum_us(case)
    with pytest.MonkeyPatch.context() as patch:
        # Small problems would go to HiGHS as a whole: here everything is left to relaxation and layers.
        patch.setattr("placer.solvers.structured.TINY_ENTRIES", 0)
        patch.setattr("placer.solvers.structured.SMALL_ENTRIES", 0)
        # Short runs of a proof: what matters here is that whatever it returns holds.
        patch.setattr("placer.solvers.structured.PROOF_NODES", (30, 300))
        patch.setattr("placer.solvers.structured.PROOF_ANNEALING", AnnealingLength(16, 1, 64))
        solution = solve_structured(case, gap=1e-5, time_limit_s=20, prove=prove)
    if best is None:
        assert solution.status is SolverStatus.INFEASIBLE
        return
    assert solution.hot is not None
    assert solution.bound_us is not None
    assert case.is_feasible(solution.hot)
    slack = ROUNDING * (1 + abs(best))
    assert solution.bound_us - slack <= best <= case.objective_us(solution.hot) + slack


@settings(max_examples=40, deadline=None)
@given(case=problems())
def test_the_bound_holds_and_the_gap_is_closed_on_small_problems(case: PlacementProblem) -> None:
    best = optimum_us(case)
    solution = solve_structured(case, gap=1e-6, time_limit_s=20)
    if best is None:
        assert solution.status is SolverStatus.INFEASIBLE
        return
    assert solution.hot is not None
    assert solution.bound_us is not None
    assert case.is_feasible(solution.hot)
    assert case.objective_us(solution.hot) == pytest.approx(solution.objective_us)
    slack = ROUNDING * (1 + abs(best))
    assert solution.bound_us <= best + slack
    assert solution.objective_us == pytest.approx(best, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize(("helps", "calls"), [(False, 1), (True, 2)])
def test_a_small_problem_that_the_integer_program_does_not_get_on_with_ends_early(
    monkeypatch: pytest.MonkeyPatch, helps: bool, calls: int
) -> None:
    # Forty steps whose two sides balance: its own search leaves a gap, and the program's bound is told here.
    random = np.random.default_rng(3)
    case = problem(*random.uniform(1.0, 9.0, size=(2, 40, 2, 16)), 16)
    given_s: list[float] = []

    def told(_case: PlacementProblem, *, time_limit_s: float, **_options: object) -> Solution:
        given_s.append(time_limit_s)
        bound_us = search_us - 0.5 * open_us if helps else 0.0
        return Solution("highs", SolverStatus.TIME_LIMIT, None, None, bound_us, None, time_limit_s)

    monkeypatch.setattr("placer.solvers.structured.TINY_ENTRIES", 0)
    monkeypatch.setattr("placer.solvers.structured.LAYER_ENTRIES", 0)
    with monkeypatch.context() as without:
        without.setattr("placer.solvers.structured.SMALL_ENTRIES", 0)
        alone = solve_structured(case, gap=1e-6, time_limit_s=1000)
    assert alone.objective_us is not None
    assert alone.bound_us is not None
    search_us, open_us = alone.objective_us, alone.objective_us - alone.bound_us
    assert open_us > 0.001 * search_us
    monkeypatch.setattr("placer.solvers.structured.solve_ilp", told)
    solution = solve_structured(case, gap=1e-6, time_limit_s=1000)
    assert solution.status is SolverStatus.SEARCHED
    assert len(given_s) == calls
    assert given_s[0] < 100
    assert all(seconds > 900 for seconds in given_s[1:])


@settings(max_examples=40, deadline=None)
@given(case=problems())
def test_a_loose_gap_stops_early_and_still_holds(case: PlacementProblem) -> None:
    best = optimum_us(case)
    solution = solve_structured(case, gap=0.2, time_limit_s=20)
    if best is not None:
        assert solution.bound_us is not None
        assert solution.objective_us is not None
        assert solution.bound_us - ROUNDING * (1 + abs(best)) <= best <= solution.objective_us + ROUNDING


def random_problem(budget_bytes: int) -> PlacementProblem:
    random = np.random.default_rng(11)
    rows = random.poisson(random.gamma(0.7, 2.0, size=(1, 12, 32)), size=(24, 12, 32))
    active = rows > 0
    return problem(
        np.where(active, 18 + 0.2 * rows, 0.0),
        np.where(active, 60 + 4.0 * rows, 0.0),
        budget_bytes,
        hot_fixed_us=np.full((24, 12), 30.0),
        cold_fixed_us=np.full((24, 12), 80.0),
        hot_fixed_when=FixedCharge.ANY_MEMBER,
    )


def test_equal_inputs_give_equal_answers() -> None:
    first, second = (solve_structured(random_problem(250), gap=0.01, time_limit_s=60) for _ in range(2))
    assert first.hot is not None
    assert np.array_equal(first.hot, second.hot)
    assert (first.objective_us, first.bound_us) == (second.objective_us, second.bound_us)


def test_a_larger_budget_never_costs_more() -> None:
    answers = [
        solve_structured(random_problem(budget), gap=0.01, time_limit_s=60) for budget in (0, 100, 250, 384)
    ]
    for smaller, larger in pairwise(answers):
        assert smaller.objective_us is not None
        assert larger.bound_us is not None
        assert larger.bound_us <= smaller.objective_us


def test_a_feasible_warm_start_is_never_worsened() -> None:
    case = random_problem(200)
    good = solve_structured(case, gap=1e-3, time_limit_s=60)
    assert good.hot is not None
    again = solve_structured(case, gap=0.5, time_limit_s=60, warm_starts=(good.hot,))
    assert again.objective_us is not None
    assert good.objective_us is not None
    assert again.objective_us <= good.objective_us


# Gaps reached in five seconds on two idle cores are half of these or less.
@needs_shared_data
@pytest.mark.parametrize(
    ("name", "gap"),
    [
        ("cpu_bound_62x160", 1e-4),
        ("kimi_k2_60x384", 1e-3),
        ("high_hot_62x160_95", 0.02),
        ("single_48x128_r1", 0.02),
    ],
)
def test_instances_are_proven(name: str, gap: float) -> None:
    (problem,) = read_instance(SHARED_DATA / "instances" / f"{name}.npz").problems()
    solution = solve_structured(problem, gap=gap, time_limit_s=30)
    assert solution.gap is not None
    assert solution.gap <= gap


def relabelled(case: PlacementProblem, layers: np.ndarray, experts: np.ndarray) -> PlacementProblem:
    """``case`` with layers and experts in another order; int [L] and [E]."""
    return replace(
        case,
        hot_us=case.hot_us[:, layers][:, :, experts],
        cold_us=case.cold_us[:, layers][:, :, experts],
        hot_fixed_us=case.hot_fixed_us[:, layers],
        cold_fixed_us=case.cold_fixed_us[:, layers],
        expert_bytes=case.expert_bytes[layers],
        min_hot=case.min_hot[layers],
        max_hot=case.max_hot[layers],
        linear_us=case.linear_us[layers][:, experts],
        cold_idle_us=None if case.cold_idle_us is None else case.cold_idle_us[:, layers],
    )


@settings(max_examples=20, deadline=None)
@given(case=problems(), seed=st.integers(0, 2**32 - 1))
def test_names_of_layers_and_experts_do_not_matter(case: PlacementProblem, seed: int) -> None:
    random = np.random.default_rng(seed)
    _, L, E = case.shape
    answers = [
        solve_structured(each, gap=1e-6, time_limit_s=20)
        for each in (case, relabelled(case, random.permutation(L), random.permutation(E)))
    ]
    assert answers[0].status is answers[1].status
    if answers[0].objective_us is not None:
        assert answers[1].objective_us == pytest.approx(answers[0].objective_us, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("scale", [0.0, 1e-9, 1e-3, 1e9])
def test_the_unit_of_the_costs_does_not_matter(scale: float) -> None:
    cold = np.array([[[10.0, 90.0, 20.0, 80.0], [70.0, 5.0, 60.0, 15.0]]])
    solution = solve_structured(problem(cold * 0.01 * scale, cold * scale, 4), gap=1e-6)
    assert solution.status is SolverStatus.OPTIMAL
    assert solution.objective_us == pytest.approx(50.0 * scale, rel=1e-6)
    assert solution.bound_us is not None
    assert solution.bound_us <= solution.objective_us


def test_equal_costs_leave_only_the_count() -> None:
    # Two layers of four experts of 10 each, room for five: three stay cold.
    costs = np.full((3, 2, 4), 10.0)
    solution = solve_structured(problem(costs * 0.0, costs, 5), gap=1e-6)
    assert solution.objective_us == pytest.approx(30.0)


@pytest.mark.parametrize(("budget", "objective"), [(0, 30.0), (2, 3.0), (99, 3.0)])
def test_a_budget_for_none_or_for_all(budget: int, objective: float) -> None:
    case = problem([[[1.0, 2.0]]], [[[10.0, 20.0]]], budget)
    solution = solve_structured(case, gap=1e-5)
    assert solution.status is SolverStatus.OPTIMAL
    assert solution.objective_us == pytest.approx(objective)


def test_one_layer_of_one_expert() -> None:
    solution = solve_structured(problem([[[1.0]]], [[[10.0]]], 1), gap=1e-6)
    assert solution.objective_us == pytest.approx(1.0)
    assert solution.hot is not None
    assert solution.hot.tolist() == [[True]]


def test_steps_without_tokens_cost_their_charges() -> None:
    # The second step routes nothing: it pays the charge of a side that always pays, and nothing else.
    case = problem([[[1.0, 1.0]], [[0.0, 0.0]]], [[[10.0, 10.0]], [[0.0, 0.0]]], 1)
    case = replace(case, cold_fixed_us=np.full((2, 1), 4.0))
    solution = solve_structured(case, gap=1e-6)
    assert solution.objective_us == pytest.approx((14.0 + 4.0) / 2)


def test_a_negative_factor_is_refused() -> None:
    case = problem([[[1.0]]], [[[10.0]]], 1, heaviest_factor=np.array([-1.0]))
    with pytest.raises(ValueError, match="heaviest_factor"):
        solve_structured(case)


def test_ctrl_c_in_a_proof_returns_the_best_plan_with_its_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    # As far as the first annealing run everything is as without Ctrl-C.
    monkeypatch.setattr("placer.solvers.structured.anneal", interrupted)
    case = random_problem(250)
    solution = solve_structured(case, gap=1e-6, time_limit_s=60, prove=True)
    assert solution.status is SolverStatus.INTERRUPTED
    assert solution.hot is not None
    assert case.is_feasible(solution.hot)
    assert solution.objective_us == case.objective_us(solution.hot)
    assert solution.gap is not None
    assert 0 < solution.gap < 0.2
