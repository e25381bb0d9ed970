"""CPU experts on kt-kernel's AMXINT4 and AMXINT8 classes: what a server runs after `kt quant`."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from placer.kernels.cpu_method_needs import CPU_METHOD_NEEDS
from placer.kernels.cpu_needs import CpuNeeds
from placer.kernels.expert_mlp import ExpertWeights
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.kt_moe import CALL_STEP, KtMoe, row_kernel_tokens

MATRICES = ("gate", "up", "down")

Bf16Source = Callable[[int, int], ExpertWeights]
"""bfloat16 (gate [I, H], up [I, H], down [H, I]) of (layer, expert)."""


@dataclass(frozen=True, eq=False)
class _Packed:
    """A matrix as the class itself packs it for one memory node: integers uint8 [bytes], a float32 per row."""

    integers: Tensor
    scales: Tensor


_Expert = dict[str, list[_Packed]]
"""By matrix, the parts of all memory nodes."""


class _KtAmx(KtMoe):
    """Integers with one scale per output row, rounded by kt-kernel from bfloat16 as its converter does.

    Despite the name these classes run on any CPU with AVX-512; AMX tiles are used where there are any.
    """

    bits: ClassVar[int]
    native: ClassVar[str]
    _weights: Bf16Source

    @classmethod
    def bytes_per_expert(cls, shape: ExpertShape) -> int:
        """``bits`` per weight and a float32 scale per output row (operators/amx/la/amx_buffers.hpp)."""
        return shape.parameters * cls.bits // 8 + 4 * (2 * shape.expert_intermediate_size + shape.hidden_size)

    @classmethod
    def border_hint(cls, shape: ExpertShape) -> int | None:
        """See `row_kernel_tokens`."""
        return row_kernel_tokens(shape)

    def load(self, shape: ExpertShape, layers: int, weights: Bf16Source, *, max_tokens: int) -> None:
        """Round and load ``layers`` layers of weights; no later call holds more than ``max_tokens``."""
        self._start(shape.hidden_size, max_tokens)
        self._weights = weights
        for layer in range(layers):
            packed = self._packed(shape, [weights(layer, index) for index in range(shape.experts)])
            self._load_layer(shape, layer, packed, max_tokens)

    def load_random(self, shape: ExpertShape, layers: int, *, seed: int, max_tokens: int) -> None:
        """See `ExpertMLP.load_random`; the class copies one expert into the memory of every other."""
        self._start(shape.hidden_size, max_tokens)
        self._weights = repeated_bf16(shape, seed)
        (packed,) = self._packed(shape, [self._weights(0, 0)])
        for layer in range(layers):
            self._load_layer(shape, layer, [packed] * shape.experts, max_tokens)

    def loaded(self, layer: int, expert: int) -> ExpertWeights:
        """See `ExpertMLP.loaded`: before the class rounded them, so its error counts that rounding."""
        gate, up, down = self._weights(layer, expert)
        return gate.to(torch.float32), up.to(torch.float32), down.to(torch.float32)

    def _kernel_class(self) -> Any:
        return getattr(self._ext.moe, self.native, None)

    def _load_layer(
        self, shape: ExpertShape, layer: int, experts: Sequence[_Expert], max_tokens: int
    ) -> None:
        config = self._config(shape, layer, max_tokens)
        for matrix in MATRICES:
            by_node = [[expert[matrix][node] for expert in experts] for node in range(self._subpools)]
            setattr(config, f"{matrix}_projs", [[p.integers.data_ptr() for p in node] for node in by_node])
            setattr(config, f"{matrix}_scales", [[p.scales.data_ptr() for p in node] for node in by_node])
        self._layers.append(self._built(config, shape.experts))

    def _packed(self, shape: ExpertShape, experts: Sequence[ExpertWeights]) -> list[_Expert]:
        """Let the class round ``experts`` and save them, and read the files that it leaves."""
        few = ExpertShape(shape.hidden_size, shape.expert_intermediate_size, len(experts), 1)
        with tempfile.TemporaryDirectory(prefix="placer-kt-") as folder:
            config = self._config(few, 0, CALL_STEP)
            stacks = [torch.stack(list(matrix)).contiguous() for matrix in zip(*experts, strict=True)]
            for matrix, stack in zip(MATRICES, stacks, strict=True):
                setattr(config, f"{matrix}_proj", stack.data_ptr())
            config.save, config.load, config.path = True, False, folder
            self._built(config, len(experts))
            return [
                {
                    matrix: [
                        _read_packed(Path(folder) / "_layer_0" / f"_numa_{node}", f"{matrix}_{index}")
                        for node in range(self._subpools)
                    ]
                    for matrix in MATRICES
                }
                for index in range(len(experts))
            ]


class KtAmxInt4(_KtAmx):
    """Four bits: small and fast, and coarse, since a whole row shares one scale."""

    name: ClassVar[str] = "kt-amxint4"
    method: ClassVar[str] = "AMXINT4"
    error_limit: ClassVar[float] = 0.7
    bits: ClassVar[int] = 4
    native: ClassVar[str] = "AMXInt4_MOE"
    needs: ClassVar[CpuNeeds] = CPU_METHOD_NEEDS["AMXINT4"]


class KtAmxInt8(_KtAmx):
    """Eight bits: twice the bytes of four, and ten times nearer to the weights that were given."""

    name: ClassVar[str] = "kt-amxint8"
    method: ClassVar[str] = "AMXINT8"
    error_limit: ClassVar[float] = 0.16
    bits: ClassVar[int] = 8
    native: ClassVar[str] = "AMXInt8_MOE"
    needs: ClassVar[CpuNeeds] = CPU_METHOD_NEEDS["AMXINT8"]


def random_bf16(shape: ExpertShape, seed: int) -> Bf16Source:
    """Different random weights for every (layer, expert), the same for the same seed."""
    hidden, inner = shape.hidden_size, shape.expert_intermediate_size

    def expert(layer: int, index: int) -> ExpertWeights:
        generator = torch.Generator().manual_seed((seed * 1009 + layer) * 100_003 + index)

        def matrix(rows: int, columns: int) -> Tensor:
            drawn = torch.randn(rows, columns, generator=generator) / float(columns**0.5)
            return drawn.to(torch.bfloat16)

        return matrix(inner, hidden), matrix(inner, hidden), matrix(hidden, inner)

    return expert


def repeated_bf16(shape: ExpertShape, seed: int) -> Bf16Source:
    """The same expert everywhere: for timing, where values do not matter and memory does."""
    only = random_bf16(shape, seed)(0, 0)
    return lambda layer, index: only


def _read_packed(folder: Path, stem: str) -> _Packed:
    def read(kind: str) -> Tensor:
        # Named by kt-kernel: INT4_gate_0_786432Byte_quant_.kt.
        (path,) = folder.glob(f"*_{stem}_*Byte_{kind}_.kt")
        return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)

    return _Packed(read("quant"), read("scale").view(torch.float32))
