"""The one interface of attention kernels: queries of one step against the keys and values that are cached."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from placer.kernels.problem import Problem


@dataclass(frozen=True)
class AttentionShape:
    """Heads of one layer on one GPU.

    Attributes
    ----------
    query_heads, kv_heads
        Hq, a multiple of Hkv.
    key_width, value_width
        Dk and Dv.
    shared
        Whether a value is the first Dv numbers of its key: the latent vector that decoding reads once for both.
    """

    query_heads: int
    kv_heads: int
    key_width: int
    value_width: int
    shared: bool = False

    def __post_init__(self) -> None:
        if min(self.query_heads, self.kv_heads, self.key_width, self.value_width) < 1:
            raise ValueError(f"{self} has nothing to attend with")
        if self.query_heads % self.kv_heads:
            raise ValueError(f"{self.kv_heads} KV heads do not divide {self.query_heads} query heads")
        if self.shared and self.value_width > self.key_width:
            raise ValueError("a value is part of its key, so it cannot be wider")


class Attention(ABC):
    """out[b, i] = softmax(scale · q[b, i] · K[b]ᵀ) V[b], query i of Q seeing the first T - Q + i + 1 of T entries.

    Attributes
    ----------
    name
        What profiles call it.
    device
        "cuda" in use; "cpu" where a test runs it.
    """

    name: ClassVar[str]

    def __init__(self, device: str = "cuda") -> None:
        self.device = device

    @classmethod
    @abstractmethod
    def problem(cls, shape: AttentionShape) -> Problem | None:
        """Why this kernel cannot run ``shape`` on this machine's GPU; None when it can."""

    @abstractmethod
    def version(self) -> str:
        """The library and its version."""

    @abstractmethod
    def bound(self, shape: AttentionShape, q: Tensor, k: Tensor, v: Tensor) -> Callable[[], Tensor]:
        """The call with its host-side work done, so that what is left can be timed or captured.

        ``q`` bfloat16 [B, Q, Hq, Dk] (Q = 1 decodes; B = 1 attends with a chunk of one prompt), ``k`` [B, T, Hkv,
        Dk] and ``v`` [B, T, Hkv, Dv] contiguous; where values are `AttentionShape.shared`, ``v`` is a view of ``k``.
        The call returns bfloat16 [B, Q, Hq, Dv].
        """


def scale_of(shape: AttentionShape) -> float:
    """1 / √Dk. A latent layer takes another constant, which changes no time."""
    return 1.0 / math.sqrt(shape.key_width)


def reference_attention(shape: AttentionShape, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same in float32, as written: what every kernel is checked against. Arguments as for `Attention.bound`."""
    group = shape.query_heads // shape.kv_heads
    queries = q.to(torch.float32).transpose(1, 2)
    keys = k.to(torch.float32).transpose(1, 2).repeat_interleave(group, dim=1)
    values = v.to(torch.float32).transpose(1, 2).repeat_interleave(group, dim=1)
    scores = queries @ keys.transpose(2, 3) * scale_of(shape)
    Q, T = scores.shape[-2:]
    seen = torch.ones(Q, T, dtype=torch.bool, device=q.device).tril(T - Q)
    weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
    return (weights @ values).transpose(1, 2)


def random_cache(
    shape: AttentionShape, requests: int, entries: int, *, device: str, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Keys [B, T, Hkv, Dk] and values [B, T, Hkv, Dv] in bfloat16; a view of the keys where they are shared."""
    size = (requests, entries, shape.kv_heads)
    k = torch.randn(*size, shape.key_width, generator=generator, device=device).to(torch.bfloat16)
    if shape.shared:
        return k, k[..., : shape.value_width]
    v = torch.randn(*size, shape.value_width, generator=generator, device=device).to(torch.bfloat16)
    return k, v
