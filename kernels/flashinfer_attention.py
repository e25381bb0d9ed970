"""Attention by FlashInfer on paged caches: what SGLang and vLLM serve with on most GPUs."""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from placer.errors import MissingComponentError
from placer.kernels.attention import Attention, AttentionShape, scale_of
from placer.kernels.foreign_call import accepts
from placer.kernels.gpu_needs import ELSEWHERE
from placer.kernels.problem import Problem

WORKSPACE_BYTES = 128 << 20
"""What FlashInfer's documentation gives its wrappers."""
WIDTHS = (64, 128, 256)
LATENT_WIDTHS = (576, 512)
"""Key and value of the latent kernel: DeepSeek's."""
TENSOR_CORE_GROUP = 4
"""Query heads per KV head from which decoding on tensor cores is faster (FlashInfer's own advice)."""
PAGE_TOKENS = 1
"""Tokens of a page, as SGLang's default has them."""

_PAGED = ("num_qo_heads", "num_kv_heads", "page_size", "sm_scale", "q_data_type")
_LATENT = ("qo_indptr", "kv_indptr", "kv_indices", "kv_len_arr", "num_heads", "head_dim_ckv", "head_dim_kpe",
           "page_size", "causal", "sm_scale", "q_data_type", "kv_data_type")  # fmt: skip


class FlashInferAttention(Attention):
    """Pages lie in a random order, as those of a server that has run for a while.

    Called by the names that FlashInfer 0.7.4 takes (its latent wrapper, by those it keeps for earlier callers).
    """

    name: ClassVar[str] = "flashinfer"

    def __init__(self, device: str = "cuda") -> None:
        super().__init__(device)
        try:
            self._lib: Any = importlib.import_module("flashinfer")
            self._mla: Any = importlib.import_module("flashinfer.mla")
            decode = self._lib.BatchDecodeWithPagedKVCacheWrapper
            prefill = self._lib.BatchPrefillWithPagedKVCacheWrapper
            latent = self._mla.BatchMLAPagedAttentionWrapper
        except (ImportError, AttributeError, RuntimeError, OSError) as error:
            raise MissingComponentError(
                f"flashinfer cannot be used here: {error}", "attention is timed by torch's kernels instead"
            ) from None
        for wrapper, names in ((decode, _PAGED), (prefill, (*_PAGED, "causal")), (latent, _LATENT)):
            accepts(wrapper.plan, names, f"flashinfer's {wrapper.__name__}.plan")

    @classmethod
    def problem(cls, shape: AttentionShape) -> Problem | None:
        """See `Attention.problem`; nothing is imported."""
        if not torch.cuda.is_available():
            return Problem(f"torch {torch.__version__} finds no CUDA device", ELSEWHERE)
        if importlib.util.find_spec("flashinfer") is None:
            return Problem("the package flashinfer is not installed", "pip install flashinfer-python")
        widths = (shape.key_width, shape.value_width)
        if shape.shared and (widths != LATENT_WIDTHS or shape.kv_heads != 1):
            return Problem(f"its latent kernel takes widths {LATENT_WIDTHS}, not {widths}", "use torch's")
        if not shape.shared and (widths[0] != widths[1] or widths[0] not in WIDTHS):
            return Problem(f"its paged kernels take heads of {WIDTHS}, not {widths}", "use torch's")
        return None

    def version(self) -> str:
        """See `Attention.version`."""
        return f"flashinfer {getattr(self._lib, '__version__', 'of unknown version')}"

    def bound(self, shape: AttentionShape, q: Tensor, k: Tensor, v: Tensor) -> Callable[[], Tensor]:
        """See `Attention.bound`: pages are dealt and the plan is made here."""
        B, Q, T = q.shape[0], q.shape[1], k.shape[1]
        workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=q.device)
        # Where page p of the pool lies: pages[order] holds the cache in its order.
        order = torch.randperm(B * T, generator=torch.Generator().manual_seed(B * T)).to(q.device)
        pages = torch.empty_like(k.reshape(B * T, shape.kv_heads, shape.key_width))
        pages[order] = k.reshape(pages.shape)
        indices = order.to(torch.int32)
        starts = torch.arange(B + 1, dtype=torch.int32, device=q.device)
        rows = q.reshape(B * Q, shape.query_heads, shape.key_width)
        run = (
            self._latent(shape, workspace, rows, pages, starts, indices, (B, Q, T))
            if shape.shared
            else self._paged(shape, workspace, rows, pages, v, starts, indices, (B, Q, T))
        )
        return lambda: run().reshape(B, Q, shape.query_heads, shape.value_width)

    def _paged(
        self,
        shape: AttentionShape,
        workspace: Tensor,
        rows: Tensor,
        pages: Tensor,
        v: Tensor,
        starts: Tensor,
        indices: Tensor,
        sizes: tuple[int, int, int],
    ) -> Callable[[], Tensor]:
        B, Q, T = sizes
        value_pages = torch.empty_like(pages)
        value_pages[indices.long()] = v.reshape(pages.shape)
        cache = (pages[:, None], value_pages[:, None])  # [pages, 1, Hkv, D], layout "NHD"
        last = torch.ones(B, dtype=torch.int32, device=rows.device)
        common = {
            "num_qo_heads": shape.query_heads,
            "num_kv_heads": shape.kv_heads,
            "page_size": PAGE_TOKENS,
            "sm_scale": scale_of(shape),
            "q_data_type": torch.bfloat16,
        }
        if Q == 1:
            cores = shape.query_heads // shape.kv_heads >= TENSOR_CORE_GROUP
            wrapper = self._lib.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=cores)
            wrapper.plan(starts * T, indices, last, head_dim=shape.key_width, **common)
        else:
            wrapper = self._lib.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
            wrapper.plan(
                starts * Q, starts * T, indices, last, head_dim_qk=shape.key_width, causal=True, **common
            )

        def run() -> Tensor:
            out: Tensor = wrapper.run(rows, cache)
            return out

        return run

    def _latent(
        self,
        shape: AttentionShape,
        workspace: Tensor,
        rows: Tensor,
        pages: Tensor,
        starts: Tensor,
        indices: Tensor,
        sizes: tuple[int, int, int],
    ) -> Callable[[], Tensor]:
        B, Q, T = sizes
        latent, rope = shape.value_width, shape.key_width - shape.value_width
        wrapper = self._mla.BatchMLAPagedAttentionWrapper(workspace)
        wrapper.plan(
            qo_indptr=starts * Q,
            kv_indptr=starts * T,
            kv_indices=indices,
            kv_len_arr=torch.full((B,), T, dtype=torch.int32, device=rows.device),
            num_heads=shape.query_heads,
            head_dim_ckv=latent,
            head_dim_kpe=rope,
            page_size=PAGE_TOKENS,
            causal=Q > 1,
            sm_scale=scale_of(shape),
            q_data_type=torch.bfloat16,
            kv_data_type=torch.bfloat16,
        )
        nope, position = rows[..., :latent].contiguous(), rows[..., latent:].contiguous()
        cache, keys = pages[..., :latent].contiguous(), pages[..., latent:].contiguous()

        def run() -> Tensor:
            out: Tensor = wrapper.run(q_nope=nope, q_pe=position, ckv_cache=cache, kpe_cache=keys)
            return out

        return run
