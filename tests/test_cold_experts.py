"""Cold experts take a checkpoint's matrices in any order, and compute what a float32 sum over them gives."""

import importlib.util

import pytest
import torch
from expert_calls import random_call, relative_error

from placer.kernels.block_fp8 import quantise_blocks
from placer.kernels.cores import usable_cores
from placer.kernels.expert_mlp import SKIP, ExpertWeights, reference_forward
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.int4 import quantise_int4
from placer.kernels.kt_rawint4 import KtRawInt4
from placer.kernels.torch_int4 import TorchInt4
from placer.runtime.vllm.cold_exact import ColdExact
from placer.runtime.vllm.cold_experts import MATRICES, ColdExperts
from placer.runtime.vllm.cold_int4 import ColdKt, ColdTorch
from placer.runtime.vllm.staging import Staging

SHAPE = ExpertShape(hidden_size=256, expert_intermediate_size=128, experts=8, top_k=3)
COUNT = 5
"""Cold experts of the layer: any number, though kt-kernel holds them by four."""
ROWS = 17


def matrices(expert: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(expert)
    sizes = {"gate": (128, 256), "up": (128, 256), "down": (256, 128)}
    return {name: torch.randn(*size, generator=generator) / 16 for name, size in sizes.items()}


def exact() -> ColdExperts:
    return ColdExact(COUNT, torch.float32)


def int4_torch() -> ColdExperts:
    backend = TorchInt4(torch.get_num_threads())
    backend.begin(SHAPE.hidden_size, ROWS)
    return ColdTorch(COUNT, backend)


def int4_kt() -> ColdExperts:
    if importlib.util.find_spec("kt_kernel") is None or usable_cores() < 2:
        pytest.skip("kt-kernel is not installed, or has no core beside its own")
    backend = KtRawInt4(threads=1)
    backend.begin(SHAPE.hidden_size, 1)
    staging = Staging(ROWS, SHAPE.hidden_size, SHAPE.top_k, pinned=False)
    return ColdKt(COUNT, SHAPE, backend, staging, ROWS)


def fill(cold: ColdExperts) -> None:
    """All matrices, one kind after the other, as some checkpoints are laid out."""
    for name in MATRICES:
        for expert in range(COUNT):
            cold.put(expert, name, matrices(expert)[name])


def call() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows whose choices among 8 experts are left out where they are not among the 5 cold ones."""
    x, ids, weights = random_call(SHAPE, ROWS, seed=1)
    return x, torch.where(ids < COUNT, ids, SKIP), weights


def rounded(expert: int) -> ExpertWeights:
    gate, up, down = (quantise_int4(matrix).dequantise() for matrix in matrices(expert).values())
    return gate, up, down


def test_the_exact_path_is_the_reference() -> None:
    cold = exact()
    fill(cold)
    x, ids, weights = call()
    cold.submit(x.float(), ids, weights)
    expected = reference_forward(lambda e: tuple(matrices(e).values()), x, ids, weights)  # type: ignore[arg-type]
    assert relative_error(cold.collect(), expected) < 1e-6
    assert cold.host_bytes == COUNT * SHAPE.parameters * 4


@pytest.mark.parametrize(
    ("made", "precision"), [(int4_torch, 0.01), pytest.param(int4_kt, 0.02, marks=pytest.mark.runtime)]
)
def test_int4_paths_are_within_their_kernels_error_of_the_same_int4_weights(made, precision: float) -> None:
    cold: ColdExperts = made()
    fill(cold)
    x, ids, weights = call()
    cold.submit(x, ids, weights)
    first = cold.collect()
    assert relative_error(first, reference_forward(rounded, x, ids, weights)) < precision
    cold.submit(x[:2], ids[:2], weights[:2])
    assert not torch.equal(cold.collect(), torch.zeros(2, SHAPE.hidden_size))
    # A result is in memory of its own: the second call left the first one as it was.
    cold.submit(x, ids, weights)
    assert torch.equal(first, cold.collect())
    assert cold.host_bytes == COUNT * (SHAPE.parameters // 2 + SHAPE.parameters // 32 * 4)


def test_an_expert_is_there_with_its_last_matrix() -> None:
    cold = exact()
    for name in ("down", "gate"):
        cold.put(0, name, matrices(0)[name])
    assert cold.missing == COUNT
    cold.put(0, "up", matrices(0)["up"])
    assert cold.missing == COUNT - 1


def test_fp8_matrices_wait_for_their_scales() -> None:
    cold = exact()
    blocks = {name: quantise_blocks(matrix) for name, matrix in matrices(0).items()}
    for name in MATRICES:
        cold.put(0, name, blocks[name].values)
    for name in MATRICES:
        assert cold.missing == COUNT
        cold.put(0, name, blocks[name].scale, scale=True)
    assert cold.missing == COUNT - 1
    x, ids, weights = call()
    ids = torch.where(ids == 0, ids, SKIP)
    cold.submit(x.float(), ids, weights)
    expected = reference_forward(lambda e: tuple(b.dequantise() for b in blocks.values()), x, ids, weights)  # type: ignore[arg-type]
    assert relative_error(cold.collect(), expected) < 1e-6


def test_a_call_larger_than_the_buffers_is_refused() -> None:
    staging = Staging(2, 4, 1, pinned=False)
    with pytest.raises(ValueError, match="a call of 3 tokens, with room for 2"):
        staging.fill(torch.zeros(3, 4), torch.zeros(3, 1), torch.zeros(3, 1))
    assert [
        int(staging.fill(torch.zeros(n, 4), torch.zeros(n, 1), torch.ones(n, 1)).tokens) for n in (1, 2)
    ] == [1, 2]
