"""FP8 (e4m3) weights with one scale per 128x128 block, rows with one per 128 values: as checkpoints hold them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from placer.kernels.expert_mlp import ExpertWeights
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.fp8 import LARGEST

BLOCK = 128
"""Weights per scale, down and across, and values per scale of a row (DeepSeek's format, `weight_block_size`)."""


@dataclass(frozen=True, eq=False)
class BlockMatrix:
    """Matrices [..., N, K]; entry = values · scale of its block.

    Attributes
    ----------
    values
        float8_e4m3fn [..., N, K].
    scale
        float32 [..., N/128, K/128].
    """

    values: Tensor
    scale: Tensor

    def dequantise(self) -> Tensor:
        """float32 [..., N, K]."""
        scale = self.scale.repeat_interleave(BLOCK, dim=-2).repeat_interleave(BLOCK, dim=-1)
        return self.values.to(torch.float32) * scale


@dataclass(frozen=True, eq=False)
class BlockExpert:
    """One expert: ``gate_up`` is [2I, H], gate first; ``down`` is [H, I]."""

    gate_up: BlockMatrix
    down: BlockMatrix

    def dequantise(self) -> ExpertWeights:
        """(gate, up, down) in float32."""
        gate, up = self.gate_up.dequantise().chunk(2)
        return gate, up, self.down.dequantise()


BlockSource = Callable[[int, int], BlockExpert]
"""Weights of (layer, expert)."""


def quantise_blocks(matrix: Tensor) -> BlockMatrix:
    """Round a float matrix [N, K] to FP8, the largest magnitude of each block at 448."""
    rows, columns = matrix.shape
    blocks = matrix.to(torch.float32).reshape(rows // BLOCK, BLOCK, columns // BLOCK, BLOCK)
    scale = (blocks.abs().amax(dim=(1, 3)) / LARGEST).clamp_min(1e-12)
    values = (blocks / scale[:, None, :, None]).clamp(-LARGEST, LARGEST)
    return BlockMatrix(values.reshape(rows, columns).to(torch.float8_e4m3fn), scale)


def quantise_groups(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Round rows [P, K] to FP8 with a scale per 128 values: float8 [P, K] and float32 [P, K/128].

    Runs without a host synchronisation, so a CUDA graph can capture it.
    """
    groups = rows.to(torch.float32).reshape(rows.shape[0], -1, BLOCK)
    scale = (groups.abs().amax(dim=2) / LARGEST).clamp_min(1e-12)
    values = (groups / scale[:, :, None]).clamp(-LARGEST, LARGEST)
    return values.reshape(rows.shape).to(torch.float8_e4m3fn), scale


def random_blocks(shape: ExpertShape, seed: int) -> BlockSource:
    """Different random weights for every (layer, expert), the same for the same seed."""
    hidden, inner = shape.hidden_size, shape.expert_intermediate_size

    def expert(layer: int, index: int) -> BlockExpert:
        generator = torch.Generator().manual_seed((seed * 1009 + layer) * 100_003 + index)

        def matrix(rows: int, columns: int) -> BlockMatrix:
            return quantise_blocks(torch.randn(rows, columns, generator=generator) / columns**0.5)

        return BlockExpert(gate_up=matrix(2 * inner, hidden), down=matrix(hidden, inner))

    return expert
