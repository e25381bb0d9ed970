"""One weight-holding module of a model: its class, its shape, and how tensor parallelism cuts it."""

from dataclasses import dataclass
from enum import Enum

from placer.model.quantization import Quantization

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


@dataclass(frozen=True)
class StoredTensor:
    """One tensor: its name in the checkpoint, element type and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Product of the shape."""
        product = 1
        for side in self.shape:
            product *= side
        return product

    @property
    def parameters(self) -> int:
        """Model parameters it holds: packed 4-bit weights count each, scales and bookkeeping none."""
        kind = self.name.rsplit(".", 1)[-1]
        if kind.endswith(("scale", "scale_inv", "scales", "weight_shape", "zero_point", "inv_freq")):
            return 0
        if kind == "weight_packed":
            return self.elements * 8
        if kind.endswith("_blocks"):
            return self.elements * 2
        return self.elements


PLAIN_DTYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}
"""Element types of the unquantised formats."""


def stored_tensors(
    module: Module, quantization: Quantization, *, block_scale_dtype: str
) -> list[StoredTensor]:
    """The tensors that a checkpoint with ``quantization`` holds for ``module``.

    ``block_scale_dtype`` is the element type of block-FP8 scales, which differs between publishers.
    """
    plain = PLAIN_DTYPES[quantization.plain]
    form = quantization.format_of(module.name) if module.linear else quantization.plain
    name = f"{module.name}.{module.parameter}"
    if form in PLAIN_DTYPES:
        tensors = [StoredTensor(name, module.dtype or plain, module.shape)]
    else:
        N, K = module.shape
        if form == "fp8_block":
            rows, columns = quantization.block
            tensors = [
                StoredTensor(name, "F8_E4M3", (N, K)),
                StoredTensor(f"{name}_scale_inv", block_scale_dtype, (-(-N // rows), -(-K // columns))),
            ]
        elif form == "fp8_channel":
            tensors = [
                StoredTensor(name, "F8_E4M3", (N, K)),
                StoredTensor(f"{name}_scale", "F32", (N, 1)),
            ]
        elif form == "int4_g32":
            tensors = [
                StoredTensor(f"{name}_packed", "I32", (N, -(-K // 8))),
                StoredTensor(f"{name}_scale", "BF16", (N, -(-K // 32))),
                StoredTensor(f"{name}_shape", "I32", (2,)),
            ]
        else:
            raise ValueError(f"no storage rule for {form} outside experts")
    if module.bias:
        tensors.append(StoredTensor(f"{module.name}.bias", plain, module.shape[:1]))
    return tensors
