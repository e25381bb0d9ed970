"""Sums over processes: right on two of them here, and refused with the count where GPUs are missing."""

import pytest
import torch

from placer.kernels.all_reduce import all_reduce_problem, time_all_reduce


def test_two_processes_sum_and_take_time() -> None:
    # Each process checks that the sum of 1 and 2 is 3 before it times anything.
    times = time_all_reduce(2, (8, 4096), samples=3, device="cpu")
    assert [len(each) for each in times] == [3, 3]
    assert all(us > 0 for each in times for us in each)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_missing_gpus_are_counted() -> None:
    problem = all_reduce_problem(4)
    assert problem is not None
    assert problem.what == "0 of 4 GPUs are here"
