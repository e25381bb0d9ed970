"""Costs of a level's steps, worked out by hand on one layer."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_model import tiny_cost, tiny_model

from placer.hbm import ServerSettings
from placer.level_cost import LevelCosts, StepCosts, level_costs, placement_problem, prompt_steps, step_costs
from placer.profiler.steps import StepKind, Steps
from placer.workload import Workload

SETTINGS = ServerSettings(max_running_requests=2, kv_tokens=64, chunk_tokens=16, kv_dtype="bf16")
WORKLOAD = Workload(prompt_tokens=16, output_tokens=8, concurrency=2)


def steps(rows: list[int], tokens: int, kind: StepKind = StepKind.DECODE) -> Steps:
    """One step of four equal layers."""
    return Steps(np.array([[rows] * 4], dtype=np.int32), np.array([tokens]), kind)


def hot_first(count: int) -> np.ndarray:
    hot = np.zeros((4, 8), dtype=bool)
    hot[:, :count] = True
    return hot


def costs(tmp_path: Path, rows: list[int], heaviest_factor: float = 0.0) -> StepCosts:
    cost = tiny_cost(heaviest_factor=heaviest_factor)
    return step_costs(tiny_model(tmp_path), cost, steps(rows, 2), SETTINGS, WORKLOAD, 1)


def test_a_layer_takes_the_longer_side(tmp_path: Path) -> None:
    # Two tokens of top-2: experts 0, 1 and 7 with 1, 1 and 2 rows.
    made = costs(tmp_path, [1, 1, 0, 0, 0, 0, 0, 2])
    # All cold: 20 + 110 + 110 + 120. The GPU part is skipped.
    assert made.layer_us(hot_first(0)).tolist() == [[360.0] * 4]
    # Experts 0 to 3 hot: hot 5 + 3 + 3, cold 20 + 120.
    assert made.layer_us(hot_first(4)).tolist() == [[140.0] * 4]
    # All hot: hot 5 + 3 + 3 + 4 = 15, yet the CPU is still submitted and synced: 20.
    assert made.layer_us(hot_first(8)).tolist() == [[20.0] * 4]


def test_an_all_hot_layer_pays_a_call_that_skips_every_expert(tmp_path: Path) -> None:
    cost = tiny_cost()
    (regime,) = cost.cold.regimes
    idle = replace(regime, idle_us=6.0, idle_token_us=1.5)
    cost = replace(
        cost,
        cold=replace(cost.cold, regimes=(idle,)),
        rates=replace(cost.rates, transfer_call_us=7.0, transfer_token_us=0.5),
    )
    made = step_costs(tiny_model(tmp_path), cost, steps([1, 1, 0, 0, 0, 0, 0, 2], 2), SETTINGS, WORKLOAD, 1)
    # 6 + 1.5·2 for the kernel, 7 + 0.5·2 for the transfers; the fitted 20 are for calls with rows.
    assert made.side_us(hot_first(8))[1].tolist() == [[17.0] * 4]
    assert made.side_us(hot_first(4))[1].tolist() == [[20.0 + 8.0 + 120.0] * 4]
    # Seven hot: no row of the step is cold, so the kernel finds every slot masked as well.
    tail_cold = step_costs(
        tiny_model(tmp_path), cost, steps([2, 1, 0, 0, 0, 0, 1, 0], 2), SETTINGS, WORKLOAD, 1
    )
    assert tail_cold.side_us(hot_first(7))[1].tolist() == [[17.0] * 4]


def test_a_hot_expert_without_rows_still_starts_the_gpu_part(tmp_path: Path) -> None:
    made = costs(tmp_path, [0, 0, 0, 0, 0, 0, 2, 2])
    hot_us, cold_us = made.side_us(hot_first(4))
    assert hot_us.tolist() == [[5.0] * 4]
    assert cold_us.tolist() == [[260.0] * 4]


def test_the_heaviest_cold_expert_can_bound_the_cold_side(tmp_path: Path) -> None:
    made = costs(tmp_path, [1, 1, 0, 0, 0, 0, 0, 2], heaviest_factor=4.0)
    # max(110 + 110 + 120, 4 · 120) + 20
    assert made.layer_us(hot_first(0)).tolist() == [[500.0] * 4]


def test_a_step_adds_the_base(tmp_path: Path) -> None:
    made = costs(tmp_path, [1, 1, 0, 0, 0, 0, 0, 2])
    # Four layers of 10 µs fixed kernels; bytes cost next to nothing on this GPU.
    assert made.base_us == pytest.approx(40.0, abs=0.1)
    assert made.step_us(hot_first(0))[0] == pytest.approx(40.0 + 4 * 360.0, abs=0.1)


def test_a_mixed_step_holds_both(tmp_path: Path) -> None:
    model, cost = tiny_model(tmp_path), tiny_cost()
    rows = [5, 5, 4, 4, 4, 4, 5, 5]
    # Two running requests and a chunk of 16; the layers' kernels are paid once.
    made = step_costs(model, cost, steps(rows, 18, StepKind.MIXED), SETTINGS, WORKLOAD, 1)
    assert made.base_us == pytest.approx(40.0, abs=0.1)
    assert made.layer_us(hot_first(0)).tolist() == [[20.0 + 8 * 100 + 10 * 36] * 4]


def served(tmp_path: Path, prompt_tokens: int, rest: Steps | None = None) -> LevelCosts:
    """Decode steps of two requests, prompts in chunks of 16 tokens and steps with the ``rest`` of one."""
    return level_costs(
        tiny_model(tmp_path),
        tiny_cost(),
        steps([1, 1, 0, 0, 0, 0, 0, 2], 2),
        steps([4, 4, 4, 4, 4, 4, 4, 4], 16, StepKind.PREFILL),
        SETTINGS,
        replace(WORKLOAD, prompt_tokens=prompt_tokens),
        1,
        rest=rest,
    )


def test_an_output_token_pays_its_share_of_a_step_and_of_its_prompt(tmp_path: Path) -> None:
    made = served(tmp_path, 16)
    # A decode step yields two tokens; a prompt of 16 tokens, one chunk, is paid by 8 output tokens.
    decode = (40.0 + 4 * 360.0) / 2
    prefill = (40.0 + 4 * (20 + 8 * 140)) / 8
    assert made.output_token_us(hot_first(0)) == pytest.approx(decode + prefill, rel=1e-3)


@pytest.mark.parametrize(
    ("prompt", "output", "running", "chunks", "rest"),
    [
        (64, 32, 1, 2.0, 0),
        # 32 + 32 + 1: the last token takes a step of its own.
        (65, 32, 1, 2.0, 1),
        (31, 32, 16, 1.0, 0),
        # More than every second step ends a request: the next prompts share chunks.
        (65, 32, 17, 65 / 32, 0),
    ],
)
def test_what_is_left_of_a_prompt_takes_a_step_of_its_own(
    prompt: int, output: int, running: int, chunks: float, rest: int
) -> None:
    found = prompt_steps(ServerSettings(running, 4096, 32, "bf16"), Workload(prompt, output, running))
    assert (found.chunk_tokens, found.chunks, found.rest_tokens) == (min(prompt, 32), chunks, rest)


def test_an_output_token_pays_for_the_rest_of_its_prompt(tmp_path: Path) -> None:
    made = served(tmp_path, 36, steps([1, 1, 1, 1, 1, 1, 1, 1], 4, StepKind.PREFILL))
    # Two chunks of 16 and a step of 4 tokens, a row for each expert: 20 + 8 * 110 µs a layer.
    decode = (40.0 + 4 * 360.0) / 2
    prompt = 2 * (40.0 + 4 * (20 + 8 * 140)) + 40.0 + 4 * (20 + 8 * 110)
    assert made.output_token_us(hot_first(0)) == pytest.approx(decode + prompt / 8, rel=1e-3)


@pytest.mark.parametrize("heaviest_factor", [0.0, 4.0])
@pytest.mark.parametrize("idle_us", [None, 12.0])
def test_the_problem_has_the_same_objective(
    tmp_path: Path, heaviest_factor: float, idle_us: float | None
) -> None:
    model, cost = tiny_model(tmp_path), tiny_cost(heaviest_factor=heaviest_factor)
    (regime,) = cost.cold.regimes
    cost = replace(cost, cold=replace(cost.cold, regimes=(replace(regime, idle_us=idle_us),)))
    made = level_costs(
        model,
        cost,
        # The second layer's token stays among the first four experts, the fourth's among the others.
        Steps(
            np.array(
                [
                    [
                        [1, 1, 0, 0, 0, 0, 0, 2],
                        [2, 1, 1, 0, 0, 0, 0, 0],
                        [0, 1, 0, 1, 0, 1, 0, 1],
                        [0, 0, 0, 0, 0, 1, 1, 2],
                    ]
                ],
                dtype=np.int32,
            ),
            np.array([2]),
            StepKind.DECODE,
        ),
        steps([4, 4, 4, 4, 4, 4, 4, 4], 16, StepKind.PREFILL),
        SETTINGS,
        WORKLOAD,
        1,
    )
    problem = placement_problem(model, made, room_experts=16, tp=1, linear_us=None, name="tiny")
    for count in (0, 4, 8):
        hot = hot_first(count)
        assert problem.objective_us(hot) == pytest.approx(made.output_token_us(hot), rel=1e-6)
        assert problem.is_feasible(hot) == (count < 8)
    assert not problem.is_feasible(hot_first(5))
