"""Latency targets: plans that weigh latency more, and the best of all plans within a target."""

import pytest
from roomy_requests import alone, kinds
from tiny_model import tiny_model

from placer.model.spec import ModelSpec
from placer.objective import Objective


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


# An answer's token costs 40 µs outside the experts, 20 per layer for the CPU's call and 110 for every cold expert:
# 120 µs in all when experts 6 and 7 are hot everywhere. A cold expert adds 100 + 64 · 10 = 740 µs to a prompt; the
# first of a layer 623, because two hot ones take 5 + 2 · (2 + 64) = 137 µs where the CPU takes 20.


def test_throughput_and_latency_choose_other_experts_where_prompts_weigh_more(tiny: ModelSpec) -> None:
    # Four output tokens: a hot prompt expert saves 740 / 4 = 185 µs of each, a hot answer expert 110.
    fast = alone(tiny, 4)
    assert kinds(fast) == (8, 2)
    assert fast.prediction.tpot_ms_p95 == pytest.approx(0.120 + 6 * 0.110, rel=0.01)
    quick = alone(tiny, 4, objective=Objective.LATENCY)
    assert kinds(quick)[1] == 8
    assert quick.prediction.tpot_ms_p95 == pytest.approx(0.120, rel=0.01)
    assert quick.objective_us == pytest.approx(120.0, rel=1e-3)
    assert quick.status == "optimal"


def test_a_target_that_only_another_plan_meets(tiny: ModelSpec) -> None:
    # 0.5 ms leave room for three cold answer experts (0.45 ms): five of ten places, and five for prompts.
    kept = alone(tiny, 4, slo_tpot_ms=0.5)
    assert kinds(kept) == (5, 5)
    assert kept.prediction.tpot_ms_p95 == pytest.approx(0.450, rel=0.01)
    assert kept.gap is not None
    assert kept.gap <= 0.005
    assert any("mean TPOT and prompt time" in note for note in kept.notes)
    # Long answers pay for their own experts; a prompt in 2 ms needs six of its eight hot.
    assert kinds(alone(tiny, 32)) == (2, 8)
    kept = alone(tiny, 32, slo_ttft_ms=2.0)
    assert kinds(kept) == (6, 4)
    assert kept.prediction.ttft_ms_p95 is not None
    assert kept.prediction.ttft_ms_p95 <= 2.0


@pytest.mark.parametrize("target_ms", [0.15, 0.6])
def test_the_plan_within_a_target_is_the_best_of_all(tiny: ModelSpec, target_ms: float) -> None:
    kept = alone(tiny, 4, slo_tpot_ms=target_ms)
    free = alone(tiny, 4, slo_tpot_ms=1e6)
    assert kept.objective_us is not None
    assert free.objective_us is not None

    def objective_us(prompt: int, answer: int) -> float:
        """Of so many hot experts of either kind, counted from the plan with eight and two."""
        cold = 8 - prompt
        prompt_us = min(cold, 4) * 623 + max(cold - 4, 0) * 740
        return (free.objective_us or 0.0) + prompt_us / 4 + (2 - answer) * 110

    tried = [(prompt, answer) for prompt in range(9) for answer in range(9) if prompt + answer <= 10]
    within = [pair for pair in tried if 0.120 + 0.110 * (8 - pair[1]) <= target_ms]
    assert kept.objective_us == pytest.approx(min(objective_us(*pair) for pair in within), rel=1e-4)
    assert kinds(kept) == min(within, key=lambda pair: objective_us(*pair))
