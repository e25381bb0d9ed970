"""Generated instances: the same for a seed, the draws by hand, and what sets each family apart."""

import numpy as np
import pytest

from placer.errors import BadInputError
from placer.solvers.bench.expert_rows import Router
from placer.solvers.bench.family import FAMILIES, Size, generated
from placer.solvers.problem import Mask, PlacementProblem
from placer.solvers.structured import solve_structured

SMALL = Size(10, 128, 12)


def planned(family: str) -> tuple[PlacementProblem, Mask]:
    (problem,) = generated(family, size=SMALL).problems()
    plan = solve_structured(problem, gap=0.02, time_limit_s=10).hot
    assert plan is not None
    return problem, plan


def hot_longest(problem: PlacementProblem, plan: Mask) -> float:
    """Share of layer-steps in which the hot side is the longer one."""
    return float(np.mean(side_us(problem, plan, hot=True) > side_us(problem, plan, hot=False)))


def side_us(problem: PlacementProblem, plan: Mask, *, hot: bool) -> np.ndarray:
    """One side with its charge, float [S, L]; 0 where a cold side is not paid for."""
    if hot:
        return np.einsum("sle,le->sl", problem.hot_us, plan) + problem.hot_fixed_us
    experts_us = np.einsum("sle,le->sl", problem.cold_us, ~plan)
    return experts_us + problem.cold_fixed_us * (experts_us > 0)


def test_a_seed_fixes_an_instance_for_good() -> None:
    assert generated("balanced", size=SMALL).sha256 == generated("balanced", size=SMALL).sha256
    assert generated("balanced", size=SMALL).sha256 != generated("balanced", size=SMALL, seed=1).sha256
    rows = generated("small-batch-1", size=Size(1, 16, 3)).levels[0].rows
    # Records are keyed by content: these draws must not change.
    assert [np.flatnonzero(step).tolist() for step in rows[:, 0]] == FROZEN


FROZEN = [[0, 3, 4, 6, 8, 11, 13, 15], [0, 2, 3, 4, 6, 7, 11, 13], [1, 2, 3, 4, 5, 9, 10, 15]]


def test_a_token_takes_top_k_experts_in_proportion_to_their_weights() -> None:
    router = Router(np.random.RandomState(3), layers=2, experts=16, top_k=4)
    rows = router.rows(200, 10)
    assert np.all(rows.sum(axis=2) == 40)
    assert rows.max() <= 10
    # One expert a token: shares are the weights', averaged over the topics.
    single = Router(np.random.RandomState(3), layers=2, experts=16, top_k=1)
    weights = single._weights
    expected = (weights / weights.sum(axis=2, keepdims=True)).mean(axis=1)
    shares = single.rows(400, 50).sum(axis=0) / 20_000
    assert np.allclose(shares, expected, atol=0.02)


def test_cpu_bound_is_longer_on_the_cold_side_everywhere() -> None:
    assert hot_longest(*planned("cpu-bound")) == 0.0


def test_balanced_has_either_side_longer_at_times() -> None:
    assert 0.1 < hot_longest(*planned("balanced")) < 0.95


def test_high_share_has_nineteen_of_twenty_hot() -> None:
    problem, plan = planned("high-share")
    assert plan.mean() == pytest.approx(0.95, abs=0.01)
    assert hot_longest(problem, plan) > 0.5


@pytest.mark.parametrize(("family", "tokens"), [("small-batch-1", 1), ("small-batch-4", 4)])
def test_small_batches_leave_layers_without_a_cold_expert_at_times(family: str, tokens: int) -> None:
    problem, plan = planned(family)
    assert np.all((problem.hot_us > 0).sum(axis=2) <= 8 * tokens)
    idle = np.mean(side_us(problem, plan, hot=False) == 0)
    assert idle > 0.1 if tokens == 1 else idle < 0.5


def test_jumps_empty_some_layers_and_fill_others() -> None:
    _, plan = planned("jumps")
    per_layer = plan.sum(axis=1)
    assert np.any(per_layer == 0)
    assert np.any(per_layer == 128)


def test_unequal_layers_differ_in_bytes_and_keep_their_bounds() -> None:
    problem, plan = planned("unequal-layers")
    assert set(problem.expert_bytes) == {1, 2}
    per_layer = plan.sum(axis=1)
    assert np.all(per_layer[:2] >= 16)
    assert np.all(per_layer[4::5] <= 64)


def test_prefill_heavy_spends_most_of_its_time_on_chunks() -> None:
    problem, plan = planned("prefill-heavy")
    time_us = problem.weight * problem.step_us(plan).sum(axis=1)
    chunks = problem.hot_us.shape[0] // 4
    assert time_us[:chunks].sum() > 0.7 * time_us.sum()


def test_levels_trade_hot_experts_for_running_requests() -> None:
    problems = generated("multi-level", size=SMALL).problems()
    budgets = [problem.budget_bytes for problem in problems]
    assert budgets == sorted(budgets, reverse=True)
    times = [solve_structured(problem, gap=0.05, time_limit_s=10).objective_us for problem in problems]
    # The best is neither the first nor the last: the choice is one.
    assert min(range(3), key=lambda level: times[level] or 0.0) == 1


def test_large_has_the_layers_and_experts_of_the_largest_models() -> None:
    assert FAMILIES["large"].size == Size(92, 896, 32)


@pytest.mark.parametrize(
    ("family", "size", "seed"),
    [
        ("unknown", SMALL, 0),
        ("balanced", Size(0, 64, 4), 0),
        ("balanced", Size(4, 8, 4), 0),
        ("balanced", SMALL, -1),
    ],
)
def test_what_cannot_be_generated_is_refused(family: str, size: Size, seed: int) -> None:
    with pytest.raises(BadInputError):
        generated(family, size=size, seed=seed)
