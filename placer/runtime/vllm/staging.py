"""Fixed host buffers that calls of every layer pass through, so that a CUDA graph finds them where it left them."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class StagedCall:
    """A call of q rows in the buffers: ``tokens`` int32 [1] holds q; see `ExpertMLP.forward` for the others."""

    tokens: Tensor
    x: Tensor
    ids: Tensor
    weights: Tensor
    out: Tensor


class Staging:
    """Room for calls of up to ``max_tokens`` rows; one call at a time.

    Copies from and to a GPU are queued on its current stream and not waited for: what reads the buffers must be
    ordered by the same stream. ``pinned`` is needed for that.
    """

    def __init__(self, max_tokens: int, hidden_size: int, top_k: int, *, pinned: bool) -> None:
        def buffer(width: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(max_tokens, width, dtype=dtype, device="cpu", pin_memory=pinned)

        self._x = buffer(hidden_size, torch.bfloat16)
        self._out = buffer(hidden_size, torch.bfloat16)
        self._ids = buffer(top_k, torch.int64)
        self._weights = buffer(top_k, torch.float32)
        # Entry q holds q, for every q at an address of its own: nothing is allocated while a graph is captured.
        counts = torch.arange(max_tokens + 1, dtype=torch.int32, device="cpu")
        self._counts = counts.pin_memory() if pinned else counts

    def fill(self, x: Tensor, ids: Tensor, weights: Tensor) -> StagedCall:
        """Copy a call into the buffers.

        Raises
        ------
        ValueError
            When it has more rows than there is room for.
        """
        rows = x.shape[0]
        if rows > self._x.shape[0]:
            raise ValueError(f"a call of {rows} tokens, with room for {self._x.shape[0]}")
        call = StagedCall(
            self._counts[rows : rows + 1],
            self._x[:rows],
            self._ids[:rows],
            self._weights[:rows],
            self._out[:rows],
        )
        call.x.copy_(x, non_blocking=True)
        call.ids.copy_(ids, non_blocking=True)
        call.weights.copy_(weights, non_blocking=True)
        return call
