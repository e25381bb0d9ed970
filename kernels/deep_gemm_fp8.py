"""GPU experts in block FP8 on DeepGEMM's grouped products: what Hopper and datacentre Blackwell servers use."""

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from placer.errors import MissingComponentError
from placer.kernels.block_fp8 import BLOCK, quantise_groups
from placer.kernels.block_fp8_experts import BlockFp8Experts
from placer.kernels.gpu_needs import GpuNeeds
from placer.kernels.row_blocks import row_blocks

_FUNCTIONS = ("m_grouped_fp8_gemm_nt_contiguous", "get_mn_major_tma_aligned_tensor",
              "get_mk_alignment_for_contiguous_layout")  # fmt: skip


class DeepGemmFp8(BlockFp8Experts):
    """Gather, round, product, SwiGLU, round, product, scatter: the products grouped over experts by DeepGEMM.

    The rest is torch's: a server fuses some of it, so that few rows take less there.
    """

    name: ClassVar[str] = "deep_gemm"
    # 10.x wants packed power-of-two scales, which these weights do not have.
    needs: ClassVar[GpuNeeds] = GpuNeeds(multiple=BLOCK, packages=("deep_gemm",), capabilities=((9, 0),))

    def __init__(self, device: str = "cuda") -> None:
        super().__init__(device)
        try:
            self._gemm: Any = importlib.import_module("deep_gemm")
        except (ImportError, AssertionError, RuntimeError, OSError) as error:
            raise MissingComponentError(
                f"deep_gemm cannot be used here: {error}", "use another --gpu-kernel"
            ) from None
        missing = [name for name in _FUNCTIONS if not hasattr(self._gemm, name)]
        if missing:
            raise MissingComponentError(
                f"{self.version()} has no {', '.join(missing)}: it has changed", "use another --gpu-kernel"
            )

    def version(self) -> str:
        """See `ExpertMLP.version`."""
        found = getattr(self._gemm, "__version__", "of unknown version")
        return f"deep_gemm {found}, torch {torch.__version__}"

    def bound(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Callable[[], Tensor]:
        """See `ExpertMLP.bound`: sorting is done here."""
        stacks, k = self._layers[layer], ids.shape[1]
        alignment = self._gemm.get_mk_alignment_for_contiguous_layout()
        block_rows = max(alignment) if isinstance(alignment, (list, tuple)) else int(alignment)
        blocks = row_blocks(ids, self._shape.experts, block_rows)
        groups = torch.repeat_interleave(blocks.experts, block_rows).to(self._device)
        slots = blocks.slots.to(self._device, torch.int64)
        real = torch.nonzero(blocks.slots >= 0).squeeze(1).to(self._device)
        tokens = torch.where(slots >= 0, slots, 0) // k
        inputs = x.to(self._device)
        factors = weights.to(self._device, torch.float32).reshape(-1)[slots[real]][:, None]
        targets = tokens[real]

        def product(rows: Tensor, stack: Any) -> Tensor:
            values, scale = quantise_groups(rows)
            out = torch.empty(rows.shape[0], stack.values.shape[1], dtype=torch.bfloat16, device=self._device)
            self._gemm.m_grouped_fp8_gemm_nt_contiguous(
                (values, self._gemm.get_mn_major_tma_aligned_tensor(scale)),
                (stack.values, stack.scale),
                out,
                groups,
            )
            return out

        def run() -> Tensor:
            total = torch.zeros(inputs.shape, dtype=torch.float32, device=self._device)
            if len(groups):
                gate, up = product(inputs[tokens], stacks.gate_up).chunk(2, dim=1)
                rows = product(torch.nn.functional.silu(gate) * up, stacks.down)
                total.index_add_(0, targets, rows[real] * factors)
            return total.to(torch.bfloat16)

        return run

    def _kind(self) -> str:
        return "DeepGEMM grouped, contiguous, block FP8"
