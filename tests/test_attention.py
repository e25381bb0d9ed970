"""Attention kernels against the float32 formula: grouped heads, the latent vector, and FlashInfer's contract."""

import importlib.util
import itertools
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from cuda_graph import replayed
from expert_calls import relative_error

from placer.errors import MissingComponentError
from placer.kernels.attention import Attention, AttentionShape, random_cache, reference_attention
from placer.kernels.flashinfer_attention import FlashInferAttention
from placer.kernels.torch_attention import TorchAttention

GROUPED = AttentionShape(query_heads=8, kv_heads=2, key_width=64, value_width=64)
LATENT_DECODE = AttentionShape(query_heads=4, kv_heads=1, key_width=576, value_width=512, shared=True)
LATENT_PREFILL = AttentionShape(query_heads=4, kv_heads=4, key_width=192, value_width=128)
ROUNDING = 0.01
"""bfloat16 has eight bits: weights and outputs round to about 0.003."""


def call(shape: AttentionShape, B: int, Q: int, T: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(B * 1000 + Q * 100 + T)
    q = torch.randn(B, Q, shape.query_heads, shape.key_width, generator=generator).to(torch.bfloat16)
    return q, *random_cache(shape, B, T, device="cpu", generator=generator)


def test_the_reference_by_hand() -> None:
    # One head of width 1, two entries with keys 0 and ln 3: the last query, 1, weighs them 1 to 3.
    shape = AttentionShape(1, 1, 1, 1)
    q = torch.tensor([1.0, 1.0]).reshape(1, 2, 1, 1)
    k = torch.tensor([0.0, 1.0986123]).reshape(1, 2, 1, 1)
    v = torch.tensor([10.0, 20.0]).reshape(1, 2, 1, 1)
    # The first of two queries sees the first entry alone.
    assert reference_attention(shape, q, k, v).flatten().tolist() == pytest.approx([10.0, 17.5])


@pytest.mark.parametrize("shape", [GROUPED, LATENT_DECODE, LATENT_PREFILL])
@pytest.mark.parametrize(("B", "Q", "T"), [(1, 1, 1), (3, 1, 33), (1, 5, 5), (1, 7, 40)])
def test_torch_agrees_with_the_reference(shape: AttentionShape, B: int, Q: int, T: int) -> None:
    q, k, v = call(shape, B, Q, T)
    found = TorchAttention("cpu").bound(shape, q, k, v)()
    assert found.shape == (B, Q, shape.query_heads, shape.value_width)
    assert found.dtype == torch.bfloat16
    assert relative_error(found, reference_attention(shape, q, k, v)) < ROUNDING


def test_shared_values_are_read_from_the_keys() -> None:
    k, v = random_cache(LATENT_DECODE, 2, 8, device="cpu", generator=torch.Generator().manual_seed(0))
    assert v.data_ptr() == k.data_ptr()
    assert torch.equal(v, k[..., :512])


def test_shapes_that_cannot_be_are_refused() -> None:
    for wrong in ((6, 4, 64, 64, False), (4, 4, 0, 64, False), (4, 1, 64, 128, True)):
        with pytest.raises(ValueError, match=r"divide|nothing|wider"):
            AttentionShape(*wrong)


# --- FlashInfer's wrappers as its documentation describes them, in float32 on the CPU ------------------------


class Paged:
    """Gathers every request's pages and attends as the formula does."""

    causal = False

    def __init__(self, float_workspace_buffer: torch.Tensor, kv_layout: str = "NHD", **_options: Any) -> None:
        assert kv_layout == "NHD"

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        starts = self.indptr.tolist()
        rows = self.rows.tolist()
        found = []
        for b, (start, end) in enumerate(itertools.pairwise(starts)):
            own = self.indices[start:end].long()
            keys, values = k[own].flatten(0, 1), v[own].flatten(0, 1)
            shape = AttentionShape(q.shape[1], keys.shape[1], keys.shape[2], values.shape[2])
            queries = q[rows[b] : rows[b + 1]]
            found.append(reference_attention(shape, queries[None], keys[None], values[None])[0])
        return torch.cat(found).to(torch.bfloat16)


class Decode(Paged):
    def plan(
        self, indptr: torch.Tensor, indices: torch.Tensor, last_page_len: torch.Tensor, num_qo_heads: int,
        num_kv_heads: int, head_dim: int, page_size: int, sm_scale: float | None = None,
        q_data_type: Any = torch.float16,
    ) -> None:  # fmt: skip
        assert page_size == 1
        assert last_page_len.tolist() == [1] * (len(indptr) - 1)
        assert (num_qo_heads, num_kv_heads, head_dim) == (8, 2, 64)
        assert sm_scale == pytest.approx(64**-0.5)
        self.indptr, self.indices = indptr, indices
        self.rows = torch.arange(len(indptr))

    def run(self, q: torch.Tensor, paged_kv_cache: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return self.attend(q, *paged_kv_cache)


class Prefill(Paged):
    def plan(
        self, qo_indptr: torch.Tensor, paged_kv_indptr: torch.Tensor, paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int,
        page_size: int, causal: bool = False, sm_scale: float | None = None, q_data_type: Any = torch.float16,
    ) -> None:  # fmt: skip
        assert causal
        self.rows, self.indptr, self.indices = qo_indptr, paged_kv_indptr, paged_kv_indices

    def run(self, q: torch.Tensor, paged_kv_cache: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return self.attend(q, *paged_kv_cache)


class Latent(Paged):
    def plan(
        self, qo_indptr: torch.Tensor, kv_indptr: torch.Tensor, kv_indices: torch.Tensor,
        kv_len_arr: torch.Tensor, num_heads: int, head_dim_ckv: int, head_dim_kpe: int, page_size: int,
        causal: bool, sm_scale: float, q_data_type: Any, kv_data_type: Any,
    ) -> None:  # fmt: skip
        assert (num_heads, head_dim_ckv, head_dim_kpe, page_size) == (4, 512, 64, 1)
        assert kv_len_arr.tolist() == (kv_indptr[1:] - kv_indptr[:-1]).tolist()
        self.rows, self.indptr, self.indices = qo_indptr, kv_indptr, kv_indices

    def run(
        self, q_nope: torch.Tensor, q_pe: torch.Tensor, ckv_cache: torch.Tensor, kpe_cache: torch.Tensor
    ) -> torch.Tensor:
        # Documented: latent and rotary part apart, [pages, page_size, width] without a head axis.
        assert ckv_cache.shape[1:] == (1, 512)
        assert kpe_cache.shape[1:] == (1, 64)
        q, k = torch.cat((q_nope, q_pe), dim=2), torch.cat((ckv_cache, kpe_cache), dim=2)[:, :, None]
        return self.attend(q, k, ckv_cache[:, :, None])


@pytest.fixture
def documented(monkeypatch: pytest.MonkeyPatch) -> Attention:
    for name, contents in (
        (
            "flashinfer",
            {
                "__version__": "documented",
                "BatchDecodeWithPagedKVCacheWrapper": Decode,
                "BatchPrefillWithPagedKVCacheWrapper": Prefill,
            },
        ),
        ("flashinfer.mla", {"BatchMLAPagedAttentionWrapper": Latent}),
    ):
        module = ModuleType(name)
        module.__dict__.update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    return FlashInferAttention("cpu")


@pytest.mark.parametrize(
    ("shape", "B", "Q", "T"),
    [(GROUPED, 3, 1, 9), (GROUPED, 1, 4, 12), (LATENT_DECODE, 2, 1, 7), (LATENT_DECODE, 1, 3, 8)],
)
def test_what_flashinfer_is_handed_means_the_call(
    documented: Attention, shape: AttentionShape, B: int, Q: int, T: int
) -> None:
    q, k, v = call(shape, B, Q, T)
    found = documented.bound(shape, q, k, v)()
    assert relative_error(found, reference_attention(shape, q, k, v)) < ROUNDING


def test_a_flashinfer_that_has_changed_is_refused_by_name(
    documented: Attention, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Decode, "plan", lambda self, indptr, heads: None)
    with pytest.raises(
        MissingComponentError, match=r"Decode\.plan takes no argument num_qo_heads.*has changed"
    ):
        FlashInferAttention("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_neither_runs_and_both_say_so() -> None:
    for kernel in (TorchAttention, FlashInferAttention):
        problem = kernel.problem(GROUPED)
        assert problem is not None
        assert "no CUDA device" in problem.what


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kernel", [TorchAttention, FlashInferAttention])
@pytest.mark.parametrize("shape", [GROUPED, LATENT_DECODE])
@pytest.mark.parametrize(("B", "Q", "T"), [(5, 1, 300), (1, 64, 200)])
def test_on_a_gpu_they_agree_inside_a_cuda_graph(
    kernel: type[Attention], shape: AttentionShape, B: int, Q: int, T: int
) -> None:
    if (problem := kernel.problem(shape)) is not None:
        pytest.skip(f"{kernel.name}: {problem}")
    q, k, v = (each.cuda() for each in call(shape, B, Q, T))
    v = k[..., : shape.value_width] if shape.shared else v
    run = kernel().bound(shape, q, k, v)
    assert relative_error(replayed(run), reference_attention(shape, q, k, v).cpu()) < ROUNDING


def test_flashinfer_is_told_apart_from_a_missing_package() -> None:
    # Where the package is there, a width it has no kernel for is the reason; elsewhere an earlier one is.
    odd = AttentionShape(query_heads=4, kv_heads=4, key_width=192, value_width=128)
    problem = FlashInferAttention.problem(odd)
    assert problem is not None
    if torch.cuda.is_available() and importlib.util.find_spec("flashinfer") is not None:
        assert "not (192, 128)" in problem.what
