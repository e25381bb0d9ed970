"""Attention by torch's scaled_dot_product_attention on contiguous caches: what is always there."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from placer.kernels.attention import Attention, AttentionShape, scale_of
from placer.kernels.gpu_needs import ELSEWHERE
from placer.kernels.problem import Problem

FUSED_WIDTH = 256
"""Widest head of torch's fused kernels; wider ones are computed as two products and a softmax."""


class TorchAttention(Attention):
    """A decoding group of query heads takes the place of query positions, so that its KV head is read once."""

    name: ClassVar[str] = "torch"

    @classmethod
    def problem(cls, shape: AttentionShape) -> Problem | None:
        """See `Attention.problem`: any shape runs on any CUDA device."""
        del shape
        if torch.cuda.is_available():
            return None
        return Problem(f"torch {torch.__version__} finds no CUDA device", ELSEWHERE)

    def version(self) -> str:
        """See `Attention.version`."""
        return f"torch {torch.__version__}, scaled_dot_product_attention"

    def bound(self, shape: AttentionShape, q: Tensor, k: Tensor, v: Tensor) -> Callable[[], Tensor]:
        """See `Attention.bound`: heads of a chunk are laid out before."""
        group = shape.query_heads // shape.kv_heads
        scale = scale_of(shape)
        B, Q, T = q.shape[0], q.shape[1], k.shape[1]
        if Q == 1:
            queries = q.reshape(B, shape.kv_heads, group, shape.key_width)
            keys, values = k.transpose(1, 2), v.transpose(1, 2)

            def decode() -> Tensor:
                out = (
                    scaled_dot_product_attention(queries, keys, values, scale=scale)
                    if shape.key_width <= FUSED_WIDTH
                    else (queries @ keys.transpose(2, 3) * scale).softmax(dim=-1) @ values
                )
                return out.reshape(B, 1, shape.query_heads, shape.value_width)

            return decode
        chunk = q.transpose(1, 2)
        keys, values = (each.transpose(1, 2).repeat_interleave(group, dim=1) for each in (k, v))
        mask = causal_lower_right(Q, T)

        def prefill() -> Tensor:
            # The mask is no tensor of numbers: torch turns it into the causal form of a fused kernel.
            out = scaled_dot_product_attention(chunk, keys, values, attn_mask=mask, scale=scale)
            return out.transpose(1, 2)

        return prefill
