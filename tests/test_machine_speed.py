"""The speed of this machine's dense products."""

import time

import pytest
import torch

from placer.profiler.timing.machine_speed import ARITHMETIC_SECONDS, dense_arithmetic, product_flops


def test_products_are_timed_in_every_type_that_kernels_compute_in() -> None:
    found = dense_arithmetic(1)
    assert [(each.dtype, each.threads) for each in found] == [("float32", 1), ("bf16", 1), ("int8", 1)]
    # Any core of the last ten years does a billion operations per second, and none ten million million.
    assert 1e9 < max(each.flops for each in found) < 1e13


def test_a_slow_product_is_not_tried_at_a_larger_size() -> None:
    """A core without instructions for a type takes a minute for what one with them does in a blink."""
    sides = []

    def slow(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        sides.append(len(left))
        time.sleep(2 * ARITHMETIC_SECONDS)
        return left

    assert product_flops(slow, torch.int8) == pytest.approx(2 * 256**3 / (2 * ARITHMETIC_SECONDS), rel=0.5)
    assert set(sides) == {256}
