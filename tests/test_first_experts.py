"""Mean times under the first n experts of every layer, for every n at once."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from tiny_model import tiny_cost, tiny_model

from placer.first_experts import FirstExperts, layers_us_by_count
from placer.hbm import ServerSettings
from placer.level_cost import StepCosts, level_costs, step_costs
from placer.objective import OUTPUT_TOKEN
from placer.profiler.steps import StepKind
from placer.replays import Replays
from placer.untraced import first_experts, uniform_trace
from placer.workload import Workload


def costs(heaviest_factor: float = 0.0) -> StepCosts:
    """One step of one layer of three experts, of which the second has no rows."""
    return StepCosts(
        kind=StepKind.DECODE,
        tokens=2,
        hot_us=np.array([[[1.0, 0.0, 2.0]]], dtype=np.float32),
        cold_us=np.array([[[10.0, 0.0, 20.0]]], dtype=np.float32),
        hot_fixed_us=np.array([3.0]),
        cold_fixed_us=np.array([5.0]),
        cold_idle_us=np.array([4.5]),
        heaviest_factor=np.array([heaviest_factor]),
        base_us=100.0,
        extrapolated_share=0.0,
    )


def test_both_sides_are_summed_from_their_ends() -> None:
    # All cold: 5 + 30; the first hot: 5 + 20; all hot: 3 + 3 beats the idle cold side's 4.5.
    assert layers_us_by_count(costs()).tolist() == [35.0, 25.0, 25.0, 6.0]


def test_the_heaviest_cold_expert_may_decide() -> None:
    assert layers_us_by_count(costs(2.0)).tolist() == [45.0, 45.0, 45.0, 6.0]


@pytest.mark.parametrize("factor", [0.0, 1.5])
def test_every_number_takes_what_its_placement_takes(factor: float) -> None:
    random = np.random.default_rng(0)
    S, L, E = 37, 3, 7
    active = random.random((S, L, E)) < 0.4
    drawn = StepCosts(
        kind=StepKind.DECODE,
        tokens=4,
        hot_us=(active * random.random((S, L, E))).astype(np.float32),
        cold_us=(active * random.random((S, L, E)) * 3).astype(np.float32),
        hot_fixed_us=random.random(S),
        cold_fixed_us=1 + random.random(S),
        cold_idle_us=random.random(S),
        heaviest_factor=np.full(S, factor),
        base_us=0.0,
        extrapolated_share=0.0,
    )
    found = layers_us_by_count(drawn)
    for count in range(E + 1):
        hot = np.broadcast_to(np.arange(E) < count, (L, E))
        assert found[count] == pytest.approx(drawn.step_us(hot).mean(), rel=1e-12)


def test_each_size_of_step_is_costed_once_whatever_the_levels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costed = Mock(wraps=step_costs)
    monkeypatch.setattr("placer.first_experts.step_costs", costed)
    model, cost = tiny_model(tmp_path), tiny_cost()
    replays = Replays(uniform_trace(model, 0), 0, "decode")
    first = FirstExperts(model, cost, replays)
    workload = Workload(64, 16, 8)
    for running, chunk in ((4, 32), (4, 64), (8, 32), (8, 64)):
        settings = ServerSettings(running, 1024, chunk, "bf16")
        found = first.weighted_us(settings, workload, 1, OUTPUT_TOKEN)
        steps = replays.decode(running), replays.prefill(chunk)
        costs = level_costs(model, cost, *steps, settings, workload, 1)
        for count in range(model.experts + 1):
            assert found[count] == pytest.approx(costs.output_token_us(first_experts(model, count)))
    assert costed.call_count == 4
