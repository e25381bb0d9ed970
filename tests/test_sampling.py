"""Sample sizes, and the correction that brings a sample's means to those of the whole trace."""

from pathlib import Path

import numpy as np
import pytest
from tiny_model import tiny_cost, tiny_model

from placer.hbm import ServerSettings
from placer.level_cost import step_costs
from placer.profiler.steps import StepKind, Steps
from placer.sampling import decode_steps, expected_expert_us, sampling_correction, whole_trace_steps
from placer.workload import Workload

SETTINGS = ServerSettings(max_running_requests=1, kv_tokens=64, chunk_tokens=16, kv_dtype="bf16")
WORKLOAD = Workload(prompt_tokens=16, output_tokens=8, concurrency=1)


def steps(chosen: list[tuple[int, int]]) -> Steps:
    """Decode steps of one token, which chooses the same two of eight experts in each of four layers."""
    rows = np.zeros((len(chosen), 4, 8), dtype=np.int32)
    for step, experts in enumerate(chosen):
        rows[step][:, list(experts)] = 1
    return Steps(rows, np.ones(len(chosen), dtype=np.int64), StepKind.DECODE)


def test_fewer_running_requests_need_more_steps() -> None:
    assert decode_steps(1) == 512
    assert decode_steps(4) == 256
    assert decode_steps(16) == 64
    assert decode_steps(256) == 48


def test_the_whole_trace_is_played_once_where_memory_allows() -> None:
    assert whole_trace_steps(60_000, 16, 24 * 32) == 3750
    # 58 layers of 256 experts: 40 million entries are 2,693 steps.
    assert whole_trace_steps(1_000_000, 16, 58 * 256) == 2693
    assert whole_trace_steps(10, 16, 24 * 32) == 1


def test_expected_costs_are_means_over_steps() -> None:
    hot, cold = expected_expert_us(tiny_cost(), steps([(0, 1), (0, 2), (0, 2), (0, 3)]))
    # A cold expert with one row costs 110 µs, a hot one 3.
    assert cold[0].tolist() == [110.0, 27.5, 55.0, 27.5, 0.0, 0.0, 0.0, 0.0]
    assert hot[0].tolist() == pytest.approx([3.0, 0.75, 1.5, 0.75, 0.0, 0.0, 0.0, 0.0])


def test_an_expert_that_the_sample_missed_is_credited(tmp_path: Path) -> None:
    # The trace uses experts 0 with 1 or 2 alike; the sample saw 1 alone.
    model, cost = tiny_model(tmp_path), tiny_cost()
    sample = step_costs(model, cost, steps([(0, 1), (0, 1)]), SETTINGS, WORKLOAD, 1)
    expected = expected_expert_us(cost, steps([(0, 1), (0, 2)]))
    none_hot = np.zeros((4, 8), dtype=bool)
    correction = sampling_correction(sample, *expected, none_hot)
    # All cold: the cold side binds always, so making expert 2 hot saves 55 µs more than the sample shows,
    # expert 1 as much less, and expert 0 is as it seems.
    assert correction[0].tolist() == pytest.approx([0.0, 55.0, -55.0, 0.0, 0.0, 0.0, 0.0, 0.0])


def test_a_sample_of_the_whole_needs_no_correction(tmp_path: Path) -> None:
    model, cost = tiny_model(tmp_path), tiny_cost()
    whole = steps([(0, 1), (2, 3)])
    sample = step_costs(model, cost, whole, SETTINGS, WORKLOAD, 1)
    none_hot = np.zeros((4, 8), dtype=bool)
    assert not sampling_correction(sample, *expected_expert_us(cost, whole), none_hot).any()
