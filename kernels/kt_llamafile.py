"""CPU experts in GGUF's Q4_K on kt-kernel's LLAMAFILE class: servers whose CPU experts come from a GGUF file."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placer.kernels.cpu_method_needs import CPU_METHOD_NEEDS, Q4K_BLOCK, TORCH_INSTEAD
from placer.kernels.cpu_needs import CpuNeeds
from placer.kernels.expert_mlp import ExpertWeights
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.kt_moe import KtMoe
from placer.kernels.problem import Problem

BLOCK_BYTES = 144
"""A block of Q4_K: 256 weights in two float16 factors, 12 bytes of scales and minima, 128 bytes of nibbles."""
GROUPED_FROM_TOKENS = 10
"""Calls of fewer tokens run token by token (kt-kernel utils/llamafile.py, group_min_len)."""
ROW_BLOCK = 32
"""Output rows of one piece of work (utils/llamafile.py, m_block)."""


@dataclass(frozen=True, eq=False)
class Q4kExpert:
    """One expert in Q4_K: uint8 ``gate`` and ``up`` [I, H/256·144], ``down`` [H, I/256·144]."""

    gate: NDArray[np.uint8]
    up: NDArray[np.uint8]
    down: NDArray[np.uint8]

    def dequantise(self) -> ExpertWeights:
        """(gate, up, down) in float32, by GGUF's own reader."""
        from gguf import GGMLQuantizationType, dequantize  # noqa: PLC0415 (comes with kt-kernel)

        def matrix(blocks: NDArray[np.uint8]) -> Tensor:
            return torch.from_numpy(dequantize(blocks, GGMLQuantizationType.Q4_K))

        return matrix(self.gate), matrix(self.up), matrix(self.down)


Q4kSource = Callable[[int, int], Q4kExpert]
"""Weights of (layer, expert)."""


class KtLlamafile(KtMoe):
    """Q4_K in all three matrices; rows are rounded to int8 in blocks of 256.

    Files that mix in other types (Q4_K_M holds some of ``down`` in Q6_K) take somewhat longer.
    """

    name: ClassVar[str] = "kt-llamafile"
    method: ClassVar[str] = "LLAMAFILE"
    error_limit: ClassVar[float] = 0.06
    needs: ClassVar[CpuNeeds] = CPU_METHOD_NEEDS["LLAMAFILE"]
    _weights: Q4kSource

    @classmethod
    def problem(cls, shape: ExpertShape, threads: int) -> Problem | None:
        """See `ExpertMLP.problem`."""
        if importlib.util.find_spec("gguf") is None:
            return Problem(
                "the package gguf, which kt-kernel needs, is not installed",
                f"run 'pip install gguf', or {TORCH_INSTEAD}",
            )
        return super().problem(shape, threads)

    @classmethod
    def bytes_per_expert(cls, shape: ExpertShape) -> int:
        """144 bytes per 256 weights."""
        return shape.parameters // Q4K_BLOCK * BLOCK_BYTES

    @classmethod
    def border_hint(cls, shape: ExpertShape) -> int | None:
        """The last count below `GROUPED_FROM_TOKENS`."""
        return GROUPED_FROM_TOKENS - 1

    def load(self, shape: ExpertShape, layers: int, weights: Q4kSource, *, max_tokens: int) -> None:
        """Hand ``layers`` layers of weights to the class; no later call holds more than ``max_tokens``."""
        self._start(shape.hidden_size, max_tokens)
        self._weights = weights
        q4_k, bf16 = self._ext.kvcache.ggml_type.Q4_K, self._ext.kvcache.ggml_type.BF16
        for layer in range(layers):
            config = self._config(shape, layer, max_tokens)
            config.m_block = ROW_BLOCK
            config.group_min_len, config.group_max_len = GROUPED_FROM_TOKENS, config.max_len
            config.hidden_type = bf16
            sources = []
            for matrix in ("gate", "up", "down"):
                # Expert by expert into one stack: a list of all of them would double the memory.
                first = getattr(weights(layer, 0), matrix)
                stack = np.empty((shape.experts, *first.shape), dtype=np.uint8)
                for index in range(shape.experts):
                    stack[index] = getattr(weights(layer, index), matrix)
                source = torch.from_numpy(stack)
                sources.append(source)
                setattr(config, f"{matrix}_proj", source.data_ptr())
                setattr(config, f"{matrix}_type", q4_k)
            self._layers.append(self._built(config, shape.experts))
            if self._subpools == 1:
                # On one memory node the class copies nothing: it reads these at every call.
                self._kept += sources

    def load_random(self, shape: ExpertShape, layers: int, *, seed: int, max_tokens: int) -> None:
        """See `ExpertMLP.load_random`."""
        only = random_q4k(shape, seed)(0, 0)
        self.load(shape, layers, lambda layer, index: only, max_tokens=max_tokens)

    def loaded(self, layer: int, expert: int) -> ExpertWeights:
        """See `ExpertMLP.loaded`."""
        return self._weights(layer, expert).dequantise()

    def _kernel_class(self) -> Any:
        return getattr(self._ext.moe, "MOE", None)


def random_q4k(shape: ExpertShape, seed: int) -> Q4kSource:
    """Different random blocks for every (layer, expert), the same for the same seed.

    A weight is d·s·n - m·t with six-bit s, t and a four-bit n; d and m are set so that weights have a mean
    near zero and a variance near 1/K.
    """
    hidden, inner = shape.hidden_size, shape.expert_intermediate_size

    def expert(layer: int, index: int) -> Q4kExpert:
        generator = np.random.default_rng((seed, layer, index))

        def matrix(rows: int, columns: int) -> NDArray[np.uint8]:
            blocks = generator.integers(0, 256, (rows * columns // Q4K_BLOCK, BLOCK_BYTES), dtype=np.uint8)
            # s and t have means of 31.5, n of 7.5: s·n - 7.5·t is 0 on average and deviates by 258.
            d = 1 / (258 * columns**0.5)
            blocks[:, :4] = np.array([d, 7.5 * d], dtype="<f2").view(np.uint8)
            return blocks.reshape(rows, -1)

        return Q4kExpert(gate=matrix(inner, hidden), up=matrix(inner, hidden), down=matrix(hidden, inner))

    return expert
