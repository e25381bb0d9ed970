"""Sums over processes: right on two of them here, and refused with the count where GPUs are missing."""

from pathlib import Path

import pytest
import torch
from tiny_model import tiny_model

from placer.kernels.all_reduce import all_reduce_problem
from placer.profiler.timing.base_plan import BaseGrid, base_plan
from placer.profiler.timing.base_timing import Device, sums_over_gpus
from placer.profiler.timing.stopwatch import wall_clock


def test_two_processes_sum_and_the_base_has_the_curve(tmp_path: Path) -> None:
    # Each process checks that the sum of 1 and 2 is 3 before it times anything.
    plan = base_plan(tiny_model(tmp_path), 2, grid=BaseGrid(tokens=(1, 16)))
    curve, assumed_us, notes = sums_over_gpus(plan, Device("cpu", "a CPU", wall_clock, 1, 1, ()))
    assert curve is not None
    assert curve.tokens == (1, 16)
    assert min(curve.us) > 0
    assert assumed_us == 0.0
    assert "NCCL" in notes[0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_where_gpus_are_missing_the_assumption_is_named(tmp_path: Path) -> None:
    plan = base_plan(tiny_model(tmp_path), 2)
    curve, assumed_us, notes = sums_over_gpus(plan, Device("cuda", "no GPU", wall_clock, 1, 1, ()))
    assert curve is None
    # Two sums over PCIe, at 2 + 2 · 3 µs each, and two over NVLink, at 5.
    assert assumed_us == 16.0
    assert notes == ["sums over GPUs are not timed (0 of 2 GPUs are here): 16.0 µs per layer assumed"]
    nvlink = sums_over_gpus(plan, Device("cuda", "NVIDIA H100 80GB HBM3", wall_clock, 1, 1, ()))
    assert nvlink[1] == 10.0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_missing_gpus_are_counted() -> None:
    problem = all_reduce_problem(4)
    assert problem is not None
    assert problem.what == "0 of 4 GPUs are here"
