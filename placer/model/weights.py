"""Bytes of the non-expert weights that one GPU holds under tensor parallelism."""

import math
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
    heads
        Query heads and KV heads of their layers, where these decide the cut.
    """

    weight_class: str
    shape: tuple[int, ...]
    dtype: str
    split: Split
    count: int
    heads: tuple[int, int] | None = None

    def bytes_per_gpu(self, tp: int, kv_heads: int | None) -> int:
        """Bytes of all tensors of the group on one of ``tp`` GPUs; a cut that leaves a rest is rounded up."""
        sides = self.sides_per_gpu(tp, kv_heads)
        return self.count * elements_bytes(math.prod(sides), self.dtype)

    def sides_per_gpu(self, tp: int, kv_heads: int | None) -> tuple[int, ...]:
        """Shape of one tensor of the group on one of ``tp`` GPUs; a cut that leaves a rest is rounded up."""
        sides = list(self.shape)
        if not sides:
            return ()
        rows = max(0, len(sides) - 2)
        if self.split is Split.VOCAB:
            padded = -(-sides[rows] // VOCAB_PADDING) * VOCAB_PADDING
            sides[rows] = -(-padded // tp)
        elif self.split is Split.OUTPUT:
            sides[rows] = -(-sides[rows] // tp)
        elif self.split is Split.CHANNELS:
            sides[0] = -(-sides[0] // tp)
        elif self.split is Split.KV_HEADS:
            kv = self.heads[1] if self.heads is not None else kv_heads
            sides[rows] = -(-sides[rows] // min(tp, kv or tp))
        elif self.split is Split.PACKED_HEADS and self.heads is not None:
            query, kv = self.heads
            held = -(-query // tp) + 2 * -(-kv // min(tp, kv))
            sides[rows] = -(-sides[rows] * held // (query + 2 * kv))
        elif self.split is Split.INPUT and len(sides) > 1:
            sides[-1] = -(-sides[-1] // tp)
        return tuple(sides)


def gpu_dtype(tensor: StoredTensor, *, plain: str, expert_format: str) -> str:
    """Element type that ``tensor`` has in GPU memory.

    FP8 scales are widened to float32 (sglang/srt/layers/quantization/fp8.py, create_weights); a float32
    checkpoint is served in bf16; everything else keeps its type.
    """
    kind = tensor.name.rsplit(".", 1)[-1]
    if kind == "weight_scale_inv" and tensor.dtype != "U8":
        return "F32"
    if kind == "scale" and tensor.dtype == "F8_E8M0":
        return "F32"
    if kind == "weight_scale" and expert_format.startswith("fp8"):
        return "F32"
    if plain == "f32" and tensor.dtype == "F32" and kind != "e_score_correction_bias":
        return "BF16"
    return tensor.dtype


Weight = tuple[str, Split, str, tuple[int, ...], tuple[int, int] | None]
"""Class, split, dtype in GPU memory, shape, and heads of one tensor."""


def weight_groups(weights: Iterable[Weight]) -> tuple[WeightGroup, ...]:
    """Group ``weights`` that are alike, in a fixed order."""
    counts = Counter(weights)
    alike = sorted(counts, key=lambda key: (key[0], key[1].value, key[2], key[3], key[4] or ()))
    return tuple(
        WeightGroup(weight_class, shape, dtype, split, counts[key], heads)
        for key in alike
        for weight_class, split, dtype, shape, heads in (key,)
    )


def class_bytes_per_gpu(groups: Iterable[WeightGroup], *, tp: int, kv_heads: int | None) -> dict[str, int]:
    """Bytes per GPU of every class of `WEIGHT_CLASSES`, zero where a model has none."""
    sums = dict.fromkeys(WEIGHT_CLASSES, 0)
    for group in groups:
        sums[group.weight_class] += group.bytes_per_gpu(tp, kv_heads)
    return sums
