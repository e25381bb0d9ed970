"""CPU experts in INT4 on kt-kernel's RAWINT4 classes: what SGLang with KTransformers runs."""

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from placer.errors import MissingComponentError
from placer.kernels.cpu_method_needs import CPU_METHOD_NEEDS, TORCH_INSTEAD
from placer.kernels.cpu_needs import CpuNeeds
from placer.kernels.expert_mlp import ExpertWeights
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.int4 import GROUP, Int4Matrix, Int4Source, repeated_int4
from placer.kernels.kt_moe import KtMoe, row_kernel_tokens

EXPERT_STEP = 4
"""RAWINT4 runs with a multiple of this many experts; with others it ends in a segmentation fault (seen with 5 to
7, 9, 10 and 13 to 15)."""


class KtRawInt4(KtMoe):
    """INT4 with a scale per 32 weights, as compressed-tensors checkpoints hold it; rows are rounded to int8.

    Which of its classes runs is what kt-kernel itself would choose here.
    """

    name: ClassVar[str] = "kt"
    method: ClassVar[str] = "RAWINT4"
    error_limit: ClassVar[float] = 0.035
    needs: ClassVar[CpuNeeds] = CPU_METHOD_NEEDS["RAWINT4"]
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
        self.begin(shape.hidden_size, max_tokens)
        self._weights = weights
        packed: dict[int, tuple[Int4Matrix, Words]] = {}
        for layer in range(layers):
            experts = [weights(layer, index) for index in range(shape.experts)]
            self.add_layer(
                shape,
                [tuple(_words(packed, m) for m in (each.gate, each.up, each.down)) for each in experts],
                max_tokens,
            )

    def begin(self, hidden_size: int, max_tokens: int) -> None:
        """Forget all layers and take calls of up to ``max_tokens`` for those that `add_layer` adds."""
        self._start(hidden_size, max_tokens)

    def add_layer(self, shape: ExpertShape, experts: Sequence[tuple["Words", ...]], max_tokens: int) -> int:
        """Add a layer of experts, each as the words of (gate, up, down), and return its index.

        ``shape`` tells the sizes and how many experts a token may choose; layers may differ in number.
        """
        index = len(self._layers)
        # All that a token chooses must exist; those added here are never chosen.
        held = -(-max(len(experts), shape.top_k) // EXPERT_STEP) * EXPERT_STEP
        experts = [*experts, *[experts[-1]] * (held - len(experts))]
        config = self._config(replace(shape, experts=held), index, max_tokens)
        config.quant_config.bits = 4
        config.quant_config.group_size = GROUP
        config.quant_config.zero_point = False
        sources: list[Tensor] = []
        for place, matrix in enumerate(("gate", "up", "down")):
            words = [expert[place] for expert in experts]
            sources += [tensor for each in words for tensor in (each.words, each.scale)]
            setattr(config, f"{matrix}_projs", [[each.words.data_ptr() for each in words]])
            setattr(config, f"{matrix}_scales", [[each.scale.data_ptr() for each in words]])
        self._layers.append(self._built(config, held))
        if self._kernel.__name__.startswith("AVX2"):
            self._kept += sources  # The AVX2 class copies nothing: it reads these at every call.
        return index

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


class Words:
    """A matrix in the layout that the class reads: packed words and bfloat16 scales, both contiguous."""

    def __init__(self, matrix: Int4Matrix) -> None:
        self.words = matrix.packed_words().contiguous()
        self.scale = matrix.scale.contiguous()


def _words(packed: dict[int, tuple[Int4Matrix, Words]], matrix: Int4Matrix) -> Words:
    """The words of ``matrix``, which is kept beside them so that its id stays its own."""
    if id(matrix) not in packed:
        packed[id(matrix)] = (matrix, Words(matrix))
    return packed[id(matrix)][1]
