"""FP8 experts on CPU arithmetic against the float32 sum; what a GPU adds is checked where there is one."""

from collections.abc import Sequence

import pytest
import torch
from cuda_graph import replayed
from expert_calls import random_call, relative_error

from placer.errors import MissingComponentError
from placer.kernels.backends import choose_gpu_backend
from placer.kernels.expert_mlp import SKIP, reference_forward
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.fp8 import Fp8Matrix, quantise_fp8, random_fp8
from placer.kernels.torch_fp8 import Stack, TorchFp8, product_by_expert, product_grouped

SHAPE = ExpertShape(hidden_size=128, expert_intermediate_size=64, experts=6, top_k=3)
PRECISION = 0.05
"""Rounding activations to e4m3 (three mantissa bits) before both products: about 0.03 relative."""


@pytest.fixture(scope="module")
def loaded() -> TorchFp8:
    backend = TorchFp8(device="cpu")
    backend.load(SHAPE, 2, random_fp8(SHAPE, seed=2), max_tokens=64)
    return backend


@pytest.mark.parametrize("tokens", [1, 4, 17])
@pytest.mark.parametrize("layer", [0, 1])
def test_agrees_with_the_reference(loaded: TorchFp8, tokens: int, layer: int) -> None:
    weights = random_fp8(SHAPE, seed=2)
    x, ids, gate_weights = random_call(SHAPE, tokens, seed=tokens)
    ids[0, 0] = SKIP
    expected = reference_forward(lambda e: weights(layer, e).dequantise(), x, ids, gate_weights)
    assert relative_error(loaded.forward(layer, x, ids, gate_weights), expected) < PRECISION


def test_nothing_to_do_gives_zeros(loaded: TorchFp8) -> None:
    x, ids, gate_weights = random_call(SHAPE, 3, seed=0)
    assert torch.all(loaded.forward(0, x, torch.full_like(ids, SKIP), gate_weights) == 0)


def test_the_matmul_is_exact_on_the_rounded_operands() -> None:
    # Against the product of the dequantised operands only the bfloat16 output is rounded.
    generator = torch.Generator().manual_seed(3)
    rows = quantise_fp8(torch.randn(7, 64, generator=generator))
    matrices = [quantise_fp8(torch.randn(32, 64, generator=generator)) for _ in range(3)]
    stack = torch.stack([m.values for m in matrices]), torch.stack([m.scale.squeeze(1) for m in matrices])
    found = product_by_expert(rows, stack, torch.tensor([2, 2, 7], dtype=torch.int32), [2, 0, 5])
    full = rows.dequantise()
    expected = torch.cat([full[:2] @ matrices[0].dequantise().T, full[2:] @ matrices[2].dequantise().T])
    assert relative_error(found, expected) < 0.005


def test_rounding_keeps_the_largest_of_each_row() -> None:
    matrix = quantise_fp8(torch.tensor([[448.0, -1.0], [0.0, 0.5]]))
    assert matrix.scale.flatten().tolist() == pytest.approx([1.0, 0.5 / 448])
    assert matrix.dequantise()[0].tolist() == [448.0, -1.0]
    assert matrix.dequantise()[1, 1].item() == pytest.approx(0.5)


def test_the_grouped_call_passes_torchs_own_shape_checks() -> None:
    # The meta device runs the checks of the operator without its kernel, which needs a GPU.
    def meta(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    rows = Fp8Matrix(meta(9, 128, dtype=torch.float8_e4m3fn), meta(9, 1, dtype=torch.float32))
    stack: Stack = meta(6, 64, 128, dtype=torch.float8_e4m3fn), meta(6, 64, dtype=torch.float32)
    counts: Sequence[int] = (9, 0, 0, 0, 0, 0)
    result = product_grouped(rows, stack, meta(6, dtype=torch.int32), counts)
    assert result.shape == (9, 64)
    assert result.dtype == torch.bfloat16


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so_and_what_to_do() -> None:
    with pytest.raises(MissingComponentError, match="no CUDA device") as caught:
        choose_gpu_backend("auto", SHAPE)
    assert "--gpu NAME" in caught.value.hint


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_it_agrees_with_the_reference_inside_a_cuda_graph() -> None:
    backend = TorchFp8()
    weights = random_fp8(SHAPE, seed=2)
    backend.load(SHAPE, 1, weights, max_tokens=64)
    x, ids, gate_weights = random_call(SHAPE, 17, seed=4)
    run = backend.bound(0, x.cuda(), ids, gate_weights)
    expected = reference_forward(lambda e: weights(0, e).dequantise(), x, ids, gate_weights)
    assert relative_error(replayed(run), expected) < PRECISION
