"""Bytes of the non-expert weights that one GPU holds under tensor parallelism."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from placer.model.dtype import elements_bytes
from placer.model.module import WEIGHT_CLASSES, Split, StoredTensor

VOCAB_PADDING = 64
"""Rows of embedding and head are padded to this (sglang/srt/layers/vocab_parallel_embedding.py)."""


@dataclass(frozen=True)
class WeightGroup:
    """Tensors that are alike in everything that decides their bytes on a GPU.

    Attributes
    ----------
    weight_class
        One of `placer.model.module.WEIGHT_CLASSES`.
    shape
        Of one whole tensor.
    dtype
        Element type in GPU memory.
    split
        How tensor parallelism cuts it.
    count
        How many tensors.
    """

    weight_class: str
    shape: tuple[int, ...]
    dtype: str
    split: Split
    count: int

    def bytes_per_gpu(self, tp: int, kv_heads: int | None) -> int:
        """Bytes of all tensors of the group on one of ``tp`` GPUs; a cut that leaves a rest is rounded up."""
        return self.count * elements_bytes(self._elements_per_gpu(tp, kv_heads), self.dtype)

    def _elements_per_gpu(self, tp: int, kv_heads: int | None) -> int:
        sides = list(self.shape)
        if not sides:
            return 1
        rows = max(0, len(sides) - 2)
        if self.split is Split.VOCAB:
            padded = -(-sides[rows] // VOCAB_PADDING) * VOCAB_PADDING
            sides[rows] = -(-padded // tp)
        elif self.split is Split.OUTPUT:
            sides[rows] = -(-sides[rows] // tp)
        elif self.split is Split.KV_HEADS:
            sides[rows] = -(-sides[rows] // min(tp, kv_heads or tp))
        elif self.split is Split.INPUT and len(sides) > 1:
            sides[-1] = -(-sides[-1] // tp)
        elements = 1
        for side in sides:
            elements *= side
        return elements


def gpu_dtype(tensor: StoredTensor, *, plain: str, expert_format: str) -> str:
    """Element type that ``tensor`` has in GPU memory.

    FP8 scales are widened to float32 (sglang/srt/layers/quantization/fp8.py, create_weights); a float32
    checkpoint is served in bf16; everything else keeps its type.
    """
    if tensor.name.endswith("weight_scale_inv"):
        return "F32"
    if tensor.name.endswith("weight_scale") and expert_format.startswith("fp8"):
        return "F32"
    if plain == "f32" and tensor.dtype == "F32" and not tensor.name.endswith("e_score_correction_bias"):
        return "BF16"
    return tensor.dtype


def weight_groups(weights: Iterable[tuple[str, Split, str, tuple[int, ...]]]) -> tuple[WeightGroup, ...]:
    """Group ``weights`` (class, split, dtype in GPU memory, shape) that are alike, in a fixed order."""
    counts = Counter(weights)
    alike = sorted(counts, key=lambda key: (key[0], key[1].value, *key[2:]))
    return tuple(
        WeightGroup(weight_class, shape, dtype, split, counts[weight_class, split, dtype, shape])
        for weight_class, split, dtype, shape in alike
    )


def class_bytes_per_gpu(groups: Iterable[WeightGroup], *, tp: int, kv_heads: int | None) -> dict[str, int]:
    """Bytes per GPU of every class of `WEIGHT_CLASSES`, zero where a model has none."""
    sums = dict.fromkeys(WEIGHT_CLASSES, 0)
    for group in groups:
        sums[group.weight_class] += group.bytes_per_gpu(tp, kv_heads)
    return sums
