"""Cold experts in the checkpoint's own precision: slow, and what the INT4 ones are checked against."""

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from placer.runtime.vllm.cold_experts import ColdExperts


class ColdExact(ColdExperts):
    """One expert after the other, products in the checkpoint's precision, sums in float32."""

    def __init__(self, count: int, dtype: torch.dtype) -> None:
        super().__init__(count)
        self._dtype = dtype
        self._experts: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self._call: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def host_bytes(self) -> int:
        """See `ColdExperts.host_bytes`."""
        return sum(matrix.nbytes for expert in self._experts.values() for matrix in expert)

    def _take(self, index: int, gate: Tensor, up: Tensor, down: Tensor) -> None:
        self._experts[index] = (self._copy(gate), self._copy(up), self._copy(down))

    def _seal(self) -> None:
        """Nothing is left to do."""

    def _copy(self, matrix: Tensor) -> Tensor:
        return matrix.to(device="cpu", dtype=self._dtype, copy=True)

    def submit(self, x: Tensor, ids: Tensor, weights: Tensor) -> None:
        """See `ColdExperts.submit`."""
        self._call = (x, ids, weights)

    def collect(self) -> Tensor:
        """See `ColdExperts.collect`; all work is done here."""
        assert self._call is not None
        device = self._call[0].device
        x, ids, weights = (tensor.cpu() for tensor in self._call)
        self._call = None
        out = torch.zeros(x.shape, dtype=torch.float32)
        for index in torch.unique(ids[ids >= 0]).tolist():
            gate, up, down = self._experts[index]
            tokens, slots = torch.nonzero(ids == index, as_tuple=True)
            rows = x[tokens]
            rows = linear(silu(linear(rows, gate)) * linear(rows, up), down)
            out.index_add_(0, tokens, rows.float() * weights[tokens, slots, None].float())
        return out.to(device)
