"""CPU experts in INT4 on kt-kernel's RAWINT4 classes: what SGLang with KTransformers runs."""

import importlib
from typing import Any, ClassVar

from torch import Tensor

from placer.errors import MissingComponentError
from placer.kernels.cpu_needs import CpuNeeds
from placer.kernels.expert_mlp import ExpertWeights
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.int4 import GROUP, Int4Matrix, Int4Source, repeated_int4
from placer.kernels.kt_moe import TORCH_INSTEAD, KtMoe, row_kernel_tokens

BLOCK = 128
"""Sizes that RAWINT4 handles are multiples of this; with others it reads past the ends of its weights
(seen with 2880: right results or a segmentation fault, depending on what lies beside them in memory)."""


class KtRawInt4(KtMoe):
    """INT4 with a scale per 32 weights, as compressed-tensors checkpoints hold it; rows are rounded to int8.

    Which of its classes runs is what kt-kernel itself would choose here.
    """

    name: ClassVar[str] = "kt"
    method: ClassVar[str] = "RAWINT4"
    error_limit: ClassVar[float] = 0.035
    needs: ClassVar[CpuNeeds] = CpuNeeds(
        flags=("avx2",),
        multiple=BLOCK,
        because="kt-kernel's RAWINT4 would read out of the bounds of its weights",
        otherwise=TORCH_INSTEAD,
    )
    _weights: Int4Source

    @classmethod
    def bytes_per_expert(cls, shape: ExpertShape) -> int:
        """Half a byte per weight, and a scale per group of 32 that the class widens to float32."""
        return shape.parameters // 2 + shape.parameters // GROUP * 4

    @classmethod
    def border_hint(cls, shape: ExpertShape) -> int | None:
        """See `row_kernel_tokens`."""
        return row_kernel_tokens(shape)

    def load(self, shape: ExpertShape, layers: int, weights: Int4Source, *, max_tokens: int) -> None:
        """Hand ``layers`` layers of weights to the class; no later call holds more than ``max_tokens``."""
        self._start(shape, max_tokens)
        self._weights = weights
        packed: dict[int, _Words] = {}
        for layer in range(layers):
            experts = [weights(layer, index) for index in range(shape.experts)]
            config = self._config(shape, layer, max_tokens)
            config.quant_config.bits = 4
            config.quant_config.group_size = GROUP
            config.quant_config.zero_point = False
            sources: list[Tensor] = []
            for matrix in ("gate", "up", "down"):
                words = [_words(packed, getattr(expert, matrix)) for expert in experts]
                sources += [tensor for each in words for tensor in (each.words, each.scale)]
                setattr(config, f"{matrix}_projs", [[each.words.data_ptr() for each in words]])
                setattr(config, f"{matrix}_scales", [[each.scale.data_ptr() for each in words]])
            self._layers.append(self._built(config, shape.experts))
            if self._kernel.__name__.startswith("AVX2"):
                self._kept += sources  # The AVX2 class copies nothing: it reads these at every call.

    def load_random(self, shape: ExpertShape, layers: int, *, seed: int, max_tokens: int) -> None:
        """See `ExpertMLP.load_random`."""
        self.load(shape, layers, repeated_int4(shape, seed), max_tokens=max_tokens)

    def loaded(self, layer: int, expert: int) -> ExpertWeights:
        """See `ExpertMLP.loaded`."""
        return self._weights(layer, expert).dequantise()

    def _kernel_class(self) -> Any:
        try:
            return importlib.import_module("kt_kernel.utils.amx")._select_rawint4_backend(GROUP)
        except (ImportError, AttributeError, RuntimeError) as error:
            raise MissingComponentError(
                f"kt-kernel has no RAWINT4 class to run here: {error}", TORCH_INSTEAD
            ) from None


class _Words:
    """A matrix in the layout that the class reads: packed words and bfloat16 scales, both contiguous."""

    def __init__(self, matrix: Int4Matrix) -> None:
        self.matrix = matrix  # Held so that its id stays its own while this is cached under it.
        self.words = matrix.packed_words().contiguous()
        self.scale = matrix.scale.contiguous()


def _words(packed: dict[int, _Words], matrix: Int4Matrix) -> _Words:
    key = id(matrix)
    if key not in packed:
        packed[key] = _Words(matrix)
    return packed[key]
