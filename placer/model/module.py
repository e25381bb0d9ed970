"""One weight-holding module of a model: its class, its shape, and how tensor parallelism cuts it."""

from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import NamedTuple

WEIGHT_CLASSES = ("attention", "router", "shared_experts", "dense", "embedding", "norms", "other", "mtp")
"""Classes of non-expert weights; ``other`` holds tensors of a checkpoint that no rule describes."""


class Split(Enum):
    """How tensor parallelism cuts a module (sglang/srt/layers/linear.py, vocab_parallel_embedding.py)."""

    REPLICATED = "replicated"
    OUTPUT = "output"
    """Rows N are cut by tp (column-parallel); biases too."""
    INPUT = "input"
    """Columns K are cut by tp (row-parallel); biases are whole on every GPU."""
    KV_HEADS = "kv heads"
    """Rows are cut by min(tp, KV heads): with more GPUs than KV heads, heads repeat."""
    PACKED_HEADS = "packed heads"
    """Rows of query heads, then of key and of value heads: each is cut as it is alone."""
    CHANNELS = "channels"
    """The first axis is cut by tp (a depthwise convolution)."""
    VOCAB = "vocab"
    """Rows are padded to a multiple of 64, then cut by tp."""


@dataclass(frozen=True)
class Module:
    """A module as config.json implies it.

    Attributes
    ----------
    name
        As in the checkpoint, without the prefix of a multimodal wrapper: ``model.layers.3.self_attn.q_proj``.
    weight_class
        One of `WEIGHT_CLASSES`.
    shape
        [N, K] of a matrix, [N] of a vector.
    split
        How tensor parallelism cuts it.
    bias
        Whether it also holds a bias [N].
    linear
        Whether a quantised checkpoint quantises it.
    dtype
        Element type where it is not the checkpoint's plain one.
    parameter
        Name of the tensor inside the module.
    stored
        Whether the checkpoint holds it; False for copies that the runtime makes while loading.
    heads
        Query heads and KV heads of its layer, where they decide the cut.
    """

    name: str
    weight_class: str
    shape: tuple[int, ...]
    split: Split = Split.REPLICATED
    bias: bool = False
    linear: bool = False
    dtype: str | None = None
    parameter: str = "weight"
    stored: bool = True
    heads: tuple[int, int] | None = None


class StoredTensor(NamedTuple):
    """One tensor: its name in the checkpoint, element type and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Product of the shape."""
        return prod(self.shape)
