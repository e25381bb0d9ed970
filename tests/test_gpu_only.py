"""GPU-only serving: how a model can be spread, and what a layer takes when GPUs share out experts."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_traces import token_trace
from test_model import QWEN3_CODER_480B
from tiny_model import tiny_cost, tiny_model

from placer.model.spec import read_model
from placer.modes.gpu_only import GpuLayers, grouped_layer_us, spread_problem, spreads
from placer.modes.steps import ComparedSteps
from placer.parallelism import Parallelism
from placer.profiler.factor import UNCALIBRATED, Factors
from placer.profiler.steps import StepKind, Steps

HOT = tiny_cost().hot
"""A call takes 5 µs, an expert with m rows 2 + m."""


def steps(*rows: list[int]) -> Steps:
    """Steps of one layer, one row each."""
    counts = np.array(rows, dtype=np.int32)[:, None, :]
    return Steps(counts, counts.sum(axis=(1, 2)).astype(np.int64), StepKind.DECODE)


def test_a_layer_takes_the_call_and_every_expert_with_rows() -> None:
    # 5 + (2 + 3) + (2 + 1).
    assert grouped_layer_us(HOT, steps([3, 0, 1, 0]), 1).tolist() == [[13.0]]


def test_groups_wait_for_the_one_with_most_to_do() -> None:
    together, apart = [1, 1, 0, 0], [1, 0, 1, 0]
    # Two experts of one group: 5 + 3 + 3; one in each: 5 + 3.
    assert grouped_layer_us(HOT, steps(together, apart), 2).ravel().tolist() == [11.0, 8.0]


def test_a_step_is_the_sum_of_its_layers() -> None:
    trace = token_trace([[[0, 1], [2, 3]]] * 4, experts=8)
    times = GpuLayers(HOT, ComparedSteps(trace, 0), 1)(StepKind.DECODE, 1)
    # Two layers of 5 + 2 · (2 + 1) each.
    assert set(times.step_us(UNCALIBRATED)) == {22.0}
    assert set(times.step_us(Factors(hot=2.0, transfer=9.0))) == {44.0}


def test_spreads_are_tp_with_every_ep_that_divides_it() -> None:
    assert [(each.tp, each.ep) for each in spreads(4)] == [(4, 1), (4, 2), (4, 4)]
    assert [(each.tp, each.ep) for each in spreads(1)] == [(1, 1)]


def test_eight_gpus_cut_the_480b_models_blocks_unless_they_share_out_experts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_CODER_480B))
    model = read_model(tmp_path)
    possible = [each.ep for each in spreads(8) if spread_problem(model, each) is None]
    # 2,560 / 8 = 320 is not a multiple of 128; 2,560 / 4 = 640 is.
    assert possible == [2, 4, 8]
    assert spread_problem(model, Parallelism(4)) is None


@pytest.mark.parametrize(("gpus", "why"), [(3, "does not divide"), (2, "not whole FP8 blocks")])
def test_a_spread_that_is_not_possible_says_why(tmp_path: Path, gpus: int, why: str) -> None:
    problem = spread_problem(tiny_model(tmp_path), Parallelism(gpus))
    assert problem is not None
    assert why in problem
