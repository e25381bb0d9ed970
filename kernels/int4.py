"""INT4 weights with one scale per 32 values along the inner dimension: the format CPU experts are held in."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from placer.kernels.cpu_method_needs import INT4_GROUP
from placer.kernels.expert_mlp import ExpertWeights
from placer.kernels.expert_shape import ExpertShape

GROUP = INT4_GROUP
"""Values that share one scale."""
ZERO = 8
"""What the integer 0 is stored as: values -8..7 are held as 0..15."""


@dataclass(frozen=True, eq=False)
class Int4Matrix:
    """A matrix [N, K] as integers and scales; entry = (values - 8) · scale.

    Attributes
    ----------
    values
        uint8 [N, K] in 0..15.
    scale
        bfloat16 [N, K/32].
    """

    values: Tensor
    scale: Tensor

    def dequantise(self) -> Tensor:
        """float32 [N, K]."""
        scale = self.scale.to(torch.float32).repeat_interleave(GROUP, dim=1)
        return (self.values.to(torch.float32) - ZERO) * scale

    def packed_words(self) -> Tensor:
        """int32 [N, K/8], eight values to a word along K, the first in the lowest nibble.

        The "pack-quantized" layout of compressed-tensors checkpoints.
        """
        nibbles = self.values.to(torch.int64).reshape(self.values.shape[0], -1, 8)
        shifts = torch.arange(0, 32, 4, dtype=torch.int64)
        # Disjoint nibbles, so the sum is their union; int64 first, since int32 has no unsigned shift.
        words = (nibbles << shifts).sum(dim=2)
        return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


@dataclass(frozen=True, eq=False)
class Int4Expert:
    """One expert: ``gate`` and ``up`` are [I, H], ``down`` is [H, I]."""

    gate: Int4Matrix
    up: Int4Matrix
    down: Int4Matrix

    def dequantise(self) -> ExpertWeights:
        """(gate, up, down) in float32."""
        return self.gate.dequantise(), self.up.dequantise(), self.down.dequantise()


Int4Source = Callable[[int, int], Int4Expert]
"""Weights of (layer, expert)."""


def quantise_int4(matrix: Tensor) -> Int4Matrix:
    """Round a float matrix [N, K] to INT4, symmetric, the largest magnitude of each group at ±7."""
    groups = matrix.to(torch.float32).reshape(matrix.shape[0], -1, GROUP)
    scale = (groups.abs().amax(dim=2) / 7).clamp_min(1e-8).to(torch.bfloat16)
    rounded = torch.round(groups / scale.to(torch.float32).unsqueeze(2)).clamp(-8, 7) + ZERO
    return Int4Matrix(rounded.to(torch.uint8).reshape(matrix.shape), scale)


def random_int4(shape: ExpertShape, seed: int) -> Int4Source:
    """Different random weights for every (layer, expert), the same for the same seed."""

    def expert(layer: int, index: int) -> Int4Expert:
        generator = torch.Generator().manual_seed((seed * 1009 + layer) * 100_003 + index)
        return _random_expert(shape, generator)

    return expert


def repeated_int4(shape: ExpertShape, seed: int) -> Int4Source:
    """The same expert everywhere: for timing, where values do not matter and memory does."""
    only = _random_expert(shape, torch.Generator().manual_seed(seed))
    return lambda layer, index: only


def _random_expert(shape: ExpertShape, generator: torch.Generator) -> Int4Expert:
    hidden, inner = shape.hidden_size, shape.expert_intermediate_size

    def matrix(rows: int, columns: int) -> Int4Matrix:
        return quantise_int4(torch.randn(rows, columns, generator=generator) / columns**0.5)

    return Int4Expert(gate=matrix(inner, hidden), up=matrix(inner, hidden), down=matrix(hidden, inner))
