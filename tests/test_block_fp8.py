"""Block FP8: 128x128 blocks of weights, groups of 128 in rows."""

import pytest
import torch
from expert_calls import relative_error

from placer.kernels.block_fp8 import quantise_blocks, quantise_groups, random_blocks
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.triton_fp8 import TritonFp8


def test_each_block_has_its_largest_magnitude_at_448() -> None:
    matrix = torch.zeros(256, 128)
    matrix[0, 0], matrix[200, 5] = -4.48, 0.896
    blocks = quantise_blocks(matrix)
    assert blocks.scale.flatten().tolist() == pytest.approx([0.01, 0.002])
    assert blocks.dequantise()[0, 0].item() == pytest.approx(-4.48)
    assert blocks.dequantise()[200, 5].item() == pytest.approx(0.896)


def test_each_group_of_a_row_has_its_own_scale() -> None:
    rows = torch.zeros(2, 256)
    rows[0, 3], rows[0, 130], rows[1, 255] = 448.0, 1.0, -2.0
    values, scale = quantise_groups(rows)
    assert scale[0].tolist() == pytest.approx([1.0, 1 / 448])
    assert scale[1, 1].item() == pytest.approx(2 / 448)
    torch.testing.assert_close(values.float() * scale.repeat_interleave(128, 1), rows)


def test_three_mantissa_bits_cost_a_fortieth() -> None:
    matrix = torch.randn(256, 384, generator=torch.Generator().manual_seed(0))
    assert relative_error(quantise_blocks(matrix).dequantise(), matrix) == pytest.approx(0.026, abs=0.003)


def test_random_weights_differ_between_experts_and_repeat_for_a_seed() -> None:
    shape = ExpertShape(128, 128, 2, 1)
    first, again = random_blocks(shape, 0)(0, 1), random_blocks(shape, 0)(0, 1)
    assert torch.equal(first.down.values.float(), again.down.values.float())
    assert not torch.equal(first.down.values.float(), random_blocks(shape, 0)(0, 0).down.values.float())


def test_bytes_of_an_expert() -> None:
    # 3 · 256 · 128 weights of a byte, and a float32 for each of their six blocks.
    assert TritonFp8.bytes_per_expert(ExpertShape(256, 128, 4, 2)) == 3 * 256 * 128 + 4 * 6
