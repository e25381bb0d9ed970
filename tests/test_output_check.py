"""A kernel that computes something else than its weights say is found before it is timed."""

import math

import pytest
import torch

from placer.errors import MissingComponentError
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.output_check import check_output, output_error
from placer.kernels.torch_int4 import TorchInt4

SHAPE = ExpertShape(hidden_size=64, expert_intermediate_size=32, experts=4, top_k=2)


@pytest.fixture
def loaded() -> TorchInt4:
    backend = TorchInt4()
    backend.load_random(SHAPE, 1, seed=0, max_tokens=16)
    return backend


def test_a_right_kernel_passes_with_its_rounding_error(loaded: TorchInt4) -> None:
    assert 0 < check_output(loaded, SHAPE, 16, seed=1) < TorchInt4.error_limit
    assert check_output(loaded, SHAPE, 16, seed=1) == output_error(loaded, SHAPE, 8, seed=1)


@pytest.mark.parametrize("factor", [0.0, 1.05, -1.0, math.nan])
def test_wrong_weights_in_memory_are_found(loaded: TorchInt4, factor: float) -> None:
    for gate_up, _ in loaded._layers[0]:
        gate_up._scale_zero *= factor
    with pytest.raises(MissingComponentError, match=r"kernel torch returns wrong numbers.*call of 8 tokens"):
        check_output(loaded, SHAPE, 16, seed=1)


def test_it_never_calls_with_more_tokens_than_were_set_aside() -> None:
    backend = TorchInt4()
    backend.load_random(SHAPE, 1, seed=0, max_tokens=3)
    assert check_output(backend, SHAPE, 3, seed=0) < TorchInt4.error_limit
    assert torch.isfinite(torch.tensor(output_error(backend, SHAPE, 1, seed=0)))
