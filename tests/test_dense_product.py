"""Projections of a layer: that they compute what they are timed for."""

import pytest
import torch
from expert_calls import relative_error

from placer.kernels.dense_product import DenseProducts, ProductShape


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("tokens", [1, 5, 16])
def test_a_product_is_that_of_its_rounded_operands(fp8: bool, tokens: int) -> None:
    products = DenseProducts(ProductShape(48, 32, fp8), 2, device="cpu", seed=0, most_tokens=16)
    for copy in range(2):
        inputs, weights = products.operands(copy, tokens)
        found = products.bound(copy, tokens)()
        assert found.shape == (tokens, 48)
        # Only the bfloat16 output is rounded.
        assert relative_error(found, inputs @ weights.T) < 0.005


def test_copies_hold_different_weights() -> None:
    products = DenseProducts(ProductShape(16, 16, False), 2, device="cpu", seed=0, most_tokens=1)
    assert not torch.equal(products.operands(0, 1)[1], products.operands(1, 1)[1])


def test_a_byte_per_weight_or_two() -> None:
    assert ProductShape(10, 20, fp8=True).bytes == 200
    assert ProductShape(10, 20, fp8=False).bytes == 400
