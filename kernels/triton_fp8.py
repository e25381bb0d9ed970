"""GPU experts in block FP8 on Triton kernels of our own: what runs wherever Triton does."""

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from placer.kernels.block_fp8 import BLOCK
from placer.kernels.block_fp8_experts import BlockFp8Experts
from placer.kernels.gpu_needs import GpuNeeds
from placer.kernels.row_blocks import row_blocks

LEAST_ROWS, MOST_ROWS = 16, 64
"""Rows of a block: the least that tensor cores take, and the most whose two sums fit a processor's registers."""
GATE_UP_STAGES = 2
"""Two weight blocks and a block of rows take 40 KiB a stage, and processors of capability 8.9 have 99 KiB."""


class TritonFp8(BlockFp8Experts):
    """Three launches and a sum: quantise rows, gate and up with SwiGLU and rounding fused, down, sum over slots.

    Sorting the rows by expert is host work done before (`bound`); a server does it on the GPU, in one launch more.
    """

    name: ClassVar[str] = "triton"
    needs: ClassVar[GpuNeeds] = GpuNeeds(multiple=BLOCK, packages=("triton",))

    def __init__(self, device: str = "cuda") -> None:
        super().__init__(device)
        self._kernels: Any = importlib.import_module("placer.kernels.triton_moe")
        # Triton's interpreter, which runs on CPUs, loses the carry when it rounds to e4m3: 124.3 becomes 64.
        self._rows_dtype = torch.float8_e4m3fn if self._device.type == "cuda" else torch.float32

    def version(self) -> str:
        """See `ExpertMLP.version`."""
        return f"triton {importlib.metadata.version('triton')}, torch {torch.__version__}"

    def bound(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Callable[[], Tensor]:
        """See `ExpertMLP.bound`."""
        stacks, shape, k = self._layers[layer], self._shape, ids.shape[1]
        H, inner, tokens = shape.hidden_size, shape.expert_intermediate_size, x.shape[0]
        block_rows = _block_rows(ids)
        blocks = row_blocks(ids, shape.experts, block_rows)
        slots, experts = blocks.slots.to(self._device), blocks.experts.to(self._device)
        count = len(blocks.experts)
        inputs = x.to(self._device).contiguous()
        factors = weights.to(self._device, torch.float32).contiguous()

        def rounded_rows(rows: int, columns: int) -> tuple[Tensor, Tensor]:
            values = torch.empty(rows, columns, dtype=self._rows_dtype, device=self._device)
            return values, torch.empty(rows, columns // BLOCK, device=self._device)

        rounded, rounded_scale = rounded_rows(tokens, H)
        hidden, hidden_scale = rounded_rows(count * block_rows, inner)
        kernels = self._kernels

        def run() -> Tensor:
            # Zeros, for the slots that are skipped.
            rows = torch.zeros(tokens * k, H, dtype=torch.bfloat16, device=self._device)
            if count:
                kernels.quantise_groups_kernel[(tokens, H // BLOCK)](
                    inputs, rounded, rounded_scale, K=H, num_warps=1,
                )  # fmt: skip
                kernels.gate_up_kernel[(count, inner // BLOCK)](
                    rounded, rounded_scale, stacks.gate_up.values, stacks.gate_up.scale, slots, experts,
                    hidden, hidden_scale, HIDDEN=H, WIDTH=inner, K=k, ROWS=block_rows,
                    num_warps=8, num_stages=GATE_UP_STAGES,
                )  # fmt: skip
                kernels.down_kernel[(count, H // BLOCK)](
                    hidden, hidden_scale, stacks.down.values, stacks.down.scale, slots, experts, factors,
                    rows, HIDDEN=H, WIDTH=inner, ROWS=block_rows,
                )  # fmt: skip
            return rows.view(tokens, k, H).sum(1, dtype=torch.float32).to(torch.bfloat16)

        return run

    def _kind(self) -> str:
        return "block-FP8 Triton kernels of placer"


def _block_rows(ids: Tensor) -> int:
    """The least block that holds the heaviest expert's rows, within bounds."""
    counts = torch.bincount(ids.reshape(-1).cpu() + 1)[1:]
    heaviest = int(counts.max()) if len(counts) else 0
    rows = LEAST_ROWS
    while rows < min(heaviest, MOST_ROWS):
        rows *= 2
    return rows
