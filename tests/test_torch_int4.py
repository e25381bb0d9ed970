"""torch's INT4 experts against the float32 sum over the same dequantised weights."""

import pytest
import torch
from expert_calls import random_call, relative_error

from placer.errors import BadInputError, MissingComponentError
from placer.kernels.backends import choose_cpu_backend
from placer.kernels.cores import usable_cores
from placer.kernels.expert_mlp import SKIP, reference_forward
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.int4 import Int4Matrix, quantise_int4, random_int4
from placer.kernels.torch_int4 import TorchInt4

SHAPE = ExpertShape(hidden_size=160, expert_intermediate_size=96, experts=6, top_k=3)
PRECISION = 0.01
"""Relative error of bfloat16 activations and outputs on INT4 weights."""


@pytest.fixture(scope="module")
def loaded() -> TorchInt4:
    backend = TorchInt4()
    backend.load(SHAPE, 2, random_int4(SHAPE, seed=5), max_tokens=64)
    return backend


@pytest.mark.parametrize("tokens", [1, 3, 4, 5, 33])
@pytest.mark.parametrize("layer", [0, 1])
def test_agrees_with_the_reference(loaded: TorchInt4, tokens: int, layer: int) -> None:
    weights = random_int4(SHAPE, seed=5)
    x, ids, gate_weights = random_call(SHAPE, tokens, seed=tokens)
    expected = reference_forward(lambda e: weights(layer, e).dequantise(), x, ids, gate_weights)
    assert relative_error(loaded.forward(layer, x, ids, gate_weights), expected) < PRECISION


def test_layers_differ(loaded: TorchInt4) -> None:
    x, ids, gate_weights = random_call(SHAPE, 4, seed=0)
    first = loaded.forward(0, x, ids, gate_weights).clone().float()
    assert relative_error(loaded.forward(1, x, ids, gate_weights), first) > 0.5


def test_skipped_slots_add_nothing(loaded: TorchInt4) -> None:
    weights = random_int4(SHAPE, seed=5)
    x, ids, gate_weights = random_call(SHAPE, 8, seed=1)
    ids[:, 1] = SKIP
    ids[3] = SKIP
    out = loaded.forward(0, x, ids, gate_weights)
    assert torch.all(out[3] == 0)
    expected = reference_forward(lambda e: weights(0, e).dequantise(), x, ids, gate_weights)
    assert relative_error(out, expected) < PRECISION


def test_nothing_to_do_gives_zeros(loaded: TorchInt4) -> None:
    x, ids, gate_weights = random_call(SHAPE, 5, seed=1)
    assert torch.all(loaded.forward(0, x, torch.full_like(ids, SKIP), gate_weights) == 0)


def test_repeated_weights_for_timing_do_not_share_memory() -> None:
    backend = TorchInt4()
    backend.load_random(SHAPE, 1, seed=0, max_tokens=4)
    addresses = {pair[0]._nibbles.data_ptr() for pair in backend._layers[0]}
    assert len(addresses) == SHAPE.experts


def test_bytes_of_an_expert_are_those_it_holds(loaded: TorchInt4) -> None:
    held = sum(
        tensor.numel() * tensor.element_size()
        for packed in loaded._layers[0][0]
        for tensor in (packed._nibbles, packed._scale_zero)
    )
    assert TorchInt4.bytes_per_expert(SHAPE) == held


def test_gpt_oss_sizes_are_no_problem() -> None:
    assert TorchInt4.problem(ExpertShape(2880, 2880, 32, 4), threads=1) is None


def test_sizes_that_the_group_does_not_divide_are_refused() -> None:
    with pytest.raises(MissingComponentError, match="expert width 100 is not a multiple of 32: INT4"):
        choose_cpu_backend("torch", ExpertShape(64, 100, 4, 2))


def test_more_threads_than_cores_are_refused() -> None:
    with pytest.raises(MissingComponentError, match="cores"):
        choose_cpu_backend("torch", SHAPE, threads=usable_cores() + 1)


def test_an_unknown_kernel_is_named() -> None:
    with pytest.raises(BadInputError, match="unknown kernel 'marlin'"):
        choose_cpu_backend("marlin", SHAPE)


def test_auto_says_why_it_passed_over_kt() -> None:
    # 96 is not a multiple of 128, so kt-kernel is out whether or not it is installed.
    backend, reason = choose_cpu_backend("auto", SHAPE)
    assert backend is TorchInt4
    assert "kt-kernel" in reason


def test_quantising_keeps_what_four_bits_can_hold() -> None:
    # One group: 7, -7 and 1 with scale 1 are kept; 0.4 rounds to 0.
    row = torch.zeros(1, 32)
    row[0, :4] = torch.tensor([7.0, -7.0, 1.0, 0.4])
    matrix = quantise_int4(row)
    assert matrix.scale.tolist() == [[1.0]]
    assert matrix.dequantise()[0, :4].tolist() == [7.0, -7.0, 1.0, 0.0]


def test_words_hold_the_first_value_in_the_lowest_nibble() -> None:
    values = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 15]], dtype=torch.uint8)
    words = Int4Matrix(values, torch.ones(1, 1, dtype=torch.bfloat16)).packed_words()
    # 0xF7654321 as a signed word.
    assert words.tolist() == [[0xF7654321 - 2**32]]


def test_a_shape_that_routes_to_more_experts_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="top_k 5 exceeds the 4 experts"):
        ExpertShape(64, 64, 4, 5)
