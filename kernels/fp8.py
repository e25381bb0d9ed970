"""FP8 (e4m3) weights and activations with one scale per row: what GPU experts are held and fed in."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from placer.kernels.expert_mlp import ExpertWeights
from placer.kernels.expert_shape import ExpertShape

LARGEST = 448.0
"""The largest finite e4m3 number."""


@dataclass(frozen=True, eq=False)
class Fp8Matrix:
    """A matrix [N, K]; entry = values · scale.

    Attributes
    ----------
    values
        float8_e4m3fn [N, K].
    scale
        float32 [N, 1].
    """

    values: Tensor
    scale: Tensor

    def dequantise(self) -> Tensor:
        """float32 [N, K]."""
        return self.values.to(torch.float32) * self.scale


@dataclass(frozen=True, eq=False)
class Fp8Expert:
    """One expert: ``gate`` and ``up`` are [I, H], ``down`` is [H, I]."""

    gate: Fp8Matrix
    up: Fp8Matrix
    down: Fp8Matrix

    def dequantise(self) -> ExpertWeights:
        """(gate, up, down) in float32."""
        return self.gate.dequantise(), self.up.dequantise(), self.down.dequantise()


Fp8Source = Callable[[int, int], Fp8Expert]
"""Weights of (layer, expert)."""


def quantise_fp8(matrix: Tensor) -> Fp8Matrix:
    """Round a float matrix [N, K] to FP8, the largest magnitude of each row at 448.

    Runs on any device without a host synchronisation, so a CUDA graph can capture it.
    """
    wide = matrix.to(torch.float32)
    scale = (wide.abs().amax(dim=1, keepdim=True) / LARGEST).clamp_min(1e-12)
    # Rounding of the division may pass the largest number by one ulp, and e4m3 has no infinity to hold it.
    values = (wide / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    return Fp8Matrix(values, scale)


def random_fp8(shape: ExpertShape, seed: int) -> Fp8Source:
    """Different random weights for every (layer, expert), the same for the same seed."""
    hidden, inner = shape.hidden_size, shape.expert_intermediate_size

    def expert(layer: int, index: int) -> Fp8Expert:
        generator = torch.Generator().manual_seed((seed * 1009 + layer) * 100_003 + index)

        def matrix(rows: int, columns: int) -> Fp8Matrix:
            return quantise_fp8(torch.randn(rows, columns, generator=generator) / columns**0.5)

        return Fp8Expert(gate=matrix(inner, hidden), up=matrix(inner, hidden), down=matrix(hidden, inner))

    return expert
