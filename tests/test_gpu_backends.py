"""GPU backends: calls into other projects against their documented contracts, and everything for real, inside a
CUDA graph, where there is a GPU."""

import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from cuda_graph import replayed
from expert_calls import random_call, relative_error

from placer.errors import MissingComponentError
from placer.kernels.backends import GPU_BACKENDS, Backend
from placer.kernels.block_fp8 import BlockMatrix, random_blocks
from placer.kernels.block_fp8_experts import BlockFp8Experts
from placer.kernels.deep_gemm_fp8 import DeepGemmFp8
from placer.kernels.expert_mlp import SKIP, reference_forward
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.foreign_call import accepts
from placer.kernels.output_check import check_output
from placer.kernels.sglang_fp8 import SglangFp8
from placer.kernels.vllm_fp8 import VllmFp8

SHAPE = ExpertShape(hidden_size=256, expert_intermediate_size=128, experts=4, top_k=2)
PRECISION = 0.05
"""Rounding rows to e4m3 (three mantissa bits) before both products: about 0.037 relative."""

# --- other projects' contracts, as documented, in float32 on the CPU ---------------------------------------


class TopK(NamedTuple):
    topk_weights: torch.Tensor
    topk_ids: torch.Tensor
    router_logits: Any


def fused_in_float32(
    w1: torch.Tensor, w2: torch.Tensor, w1_scale: torch.Tensor, w2_scale: torch.Tensor,
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """The sum over slots, gate above up in ``w1``."""
    gate, up = BlockMatrix(w1, w1_scale).dequantise().chunk(2, dim=1)
    down = BlockMatrix(w2, w2_scale).dequantise()
    return reference_forward(lambda e: (gate[e], up[e], down[e]), x, ids, weights).to(torch.bfloat16)


def install(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(contents)
    monkeypatch.setitem(sys.modules, name, module)


def install_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    def fused_experts(
        hidden_states: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, topk_output: TopK,
        moe_runner_config: SimpleNamespace, use_fp8_w8a8: bool = False, w1_scale: Any = None,
        w2_scale: Any = None, block_shape: Any = None,
    ) -> torch.Tensor:  # fmt: skip
        config = moe_runner_config
        assert use_fp8_w8a8
        assert block_shape == [128, 128]
        assert not config.inplace
        # Only then are slots of -1 left out.
        assert config.num_experts != config.num_local_experts == w1.shape[0]
        assert topk_output.topk_ids.dtype == torch.int32
        ids = topk_output.topk_ids.long()
        return fused_in_float32(w1, w2, w1_scale, w2_scale, hidden_states, ids, topk_output.topk_weights)

    served: list[Any] = []
    install(
        monkeypatch, "sglang.srt.server_args",
        ServerArgs=SimpleNamespace, set_global_server_args_for_scheduler=served.append,
    )  # fmt: skip
    install(monkeypatch, "sglang.srt.layers.moe.fused_moe_triton.fused_moe", fused_experts=fused_experts)
    install(monkeypatch, "sglang.srt.layers.moe.moe_runner", MoeRunnerConfig=SimpleNamespace)
    install(monkeypatch, "sglang.srt.layers.moe.topk", StandardTopKOutput=TopK)


def install_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    def fused_experts(
        hidden_states: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, topk_weights: torch.Tensor,
        topk_ids: torch.Tensor, global_num_experts: int = -1, expert_map: Any = None, quant_config: Any = None,
    ) -> torch.Tensor:  # fmt: skip
        assert quant_config.block_shape == [128, 128]
        assert len(expert_map) == global_num_experts
        local = expert_map[topk_ids.long()].long()
        return fused_in_float32(
            w1, w2, quant_config.w1_scale, quant_config.w2_scale, hidden_states, local, topk_weights
        )

    def quantised(w1_scale: Any, w2_scale: Any, block_shape: Any = None) -> SimpleNamespace:
        return SimpleNamespace(w1_scale=w1_scale, w2_scale=w2_scale, block_shape=block_shape)

    moe = "vllm.model_executor.layers.fused_moe"
    install(monkeypatch, f"{moe}.fused_moe", fused_experts=fused_experts)
    install(monkeypatch, f"{moe}.config", fp8_w8a8_moe_quant_config=quantised)
    monkeypatch.setattr(VllmFp8, "version", lambda self: "vllm, documented")


def install_deep_gemm(monkeypatch: pytest.MonkeyPatch) -> None:
    def product(rows: Any, stack: Any, out: torch.Tensor, groups: torch.Tensor) -> None:
        values, scale = rows
        wide = values.float() * scale.repeat_interleave(128, dim=1)
        weights = BlockMatrix(*stack).dequantise()
        # Rows of one group fill whole blocks of the alignment.
        assert groups.dtype == torch.int32
        assert bool((groups.reshape(-1, 16) == groups[::16, None]).all())
        out.copy_(torch.einsum("mk,mnk->mn", wide, weights[groups.long()]))

    install(
        monkeypatch, "deep_gemm", __version__="documented", m_grouped_fp8_gemm_nt_contiguous=product,
        get_mn_major_tma_aligned_tensor=lambda scale: scale, get_mk_alignment_for_contiguous_layout=lambda: 16,
    )  # fmt: skip


CONTRACTS = {SglangFp8: install_sglang, VllmFp8: install_vllm, DeepGemmFp8: install_deep_gemm}


@pytest.mark.parametrize("kind", CONTRACTS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("tokens", [1, 5, 33])
def test_what_is_handed_to_other_projects_means_the_call(
    kind: type[BlockFp8Experts], tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    CONTRACTS[kind](monkeypatch)
    backend = kind(device="cpu")
    backend.load(SHAPE, 2, random_blocks(SHAPE, seed=1), max_tokens=40)
    x, ids, weights = random_call(SHAPE, tokens, seed=tokens)
    ids[0, 0] = SKIP
    expected = reference_forward(lambda e: backend.loaded(1, e), x, ids, weights)
    assert relative_error(backend.forward(1, x, ids, weights), expected) < PRECISION
    assert torch.all(backend.forward(0, x, torch.full_like(ids, SKIP), weights) == 0)


@pytest.mark.parametrize("kind", CONTRACTS, ids=lambda kind: kind.name)
def test_weights_for_timing_pass_the_check(
    kind: type[BlockFp8Experts], monkeypatch: pytest.MonkeyPatch
) -> None:
    CONTRACTS[kind](monkeypatch)
    backend = kind(device="cpu")
    backend.load_random(SHAPE, 1, seed=0, max_tokens=8)
    assert check_output(backend, SHAPE, 8, seed=0) < backend.error_limit


def test_a_project_that_has_changed_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    install_vllm(monkeypatch)
    changed = sys.modules["vllm.model_executor.layers.fused_moe.fused_moe"]
    monkeypatch.setattr(changed, "fused_experts", lambda hidden_states, w13, w2: hidden_states)
    with pytest.raises(MissingComponentError, match=r"takes no argument w1, topk_weights.*it has changed"):
        VllmFp8(device="cpu")


def test_arguments_are_looked_for_by_name() -> None:
    def takes(a: int, *, b: int) -> None: ...
    def takes_all(**everything: int) -> None: ...

    accepts(takes, ("a", "b"), "takes")
    accepts(takes_all, ("c",), "takes_all")
    with pytest.raises(MissingComponentError, match="takes takes no argument c"):
        accepts(takes, ("a", "c"), "takes")


# --- on a GPU ---------------------------------------------------------------------------------------------


def runs_here(backends: Sequence[Backend]) -> list[Any]:
    return [
        pytest.param(
            backend,
            id=backend.name,
            marks=pytest.mark.skipif(
                (problem := backend.problem(SHAPE, 1)) is not None, reason=f"{backend.name}: {problem}"
            ),
        )
        for backend in backends
    ]


@pytest.mark.parametrize("kind", runs_here([b for b in GPU_BACKENDS if issubclass(b, BlockFp8Experts)]))
def test_on_a_gpu_it_agrees_with_the_reference_inside_a_cuda_graph(kind: type[BlockFp8Experts]) -> None:
    backend = kind()
    backend.load(SHAPE, 1, random_blocks(SHAPE, seed=2), max_tokens=64)
    x, ids, weights = random_call(SHAPE, 17, seed=4)
    ids[3] = SKIP
    run = backend.bound(0, x.cuda(), ids, weights)
    expected = reference_forward(lambda e: backend.loaded(0, e), x, ids, weights)
    assert relative_error(replayed(run), expected) < PRECISION
