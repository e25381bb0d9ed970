"""The tensors that a checkpoint holds for a module, by the format that the module is stored in."""

from collections.abc import Callable
from dataclasses import dataclass

from placer.model.dtype import elements_bytes
from placer.model.formats import FP8_BLOCK, GROUP, NVFP4_GROUP, packed_format
from placer.model.module import Module, StoredTensor
from placer.model.quantization import Quantization

PLAIN_DTYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}
"""Element types of the unquantised formats."""


@dataclass(frozen=True)
class Naming:
    """What differs between publishers in how they store block scales.

    Attributes
    ----------
    scale_dtype
        Element type of block-FP8 scales.
    scale_name
        Name of scales, ``weight_scale_inv`` unless a family has another.
    """

    scale_dtype: str = "F32"
    scale_name: str = "weight_scale_inv"


Entries = list[tuple[str, str, tuple[int, ...]]]
"""Name inside the module, element type, shape."""


def stored_tensors(module: Module, quantization: Quantization, naming: Naming) -> list[StoredTensor]:
    """The tensors that a checkpoint with ``quantization`` holds for ``module``."""
    plain = PLAIN_DTYPES[quantization.plain]
    form = quantization.format_of(module.name) if module.linear else quantization.plain
    if form in PLAIN_DTYPES:
        entries: Entries = [(module.parameter, module.dtype or plain, module.shape)]
    else:
        N, K = module.shape
        entries = matrix_entries(form, N, K, block=quantization.block, naming=naming)
    if module.bias:
        entries.append(("bias", plain, module.shape[:1]))
    return [StoredTensor(f"{module.name}.{name}", dtype, shape) for name, dtype, shape in entries]


def matrix_entries(
    form: str, N: int, K: int, *, block: tuple[int, int] = FP8_BLOCK, naming: Naming = Naming()
) -> Entries:
    """What a checkpoint holds for a matrix [N, K] in the quantised format ``form``."""
    if form == "fp8_block":
        rows, columns = block
        scales = (-(-N // rows), -(-K // columns))
        dtype = "F8_E8M0" if naming.scale_name == "scale" else naming.scale_dtype
        return [("weight", "F8_E4M3", (N, K)), (naming.scale_name, dtype, scales)]
    if form == "mxfp4" and naming.scale_name == "scale":
        # Two values to a signed byte (DeepSeek-V4).
        return [("weight", "I8", (N, -(-K // 2))), ("scale", "F8_E8M0", (N, -(-K // GROUP)))]
    if form in _ENTRIES:
        return _ENTRIES[form](N, K)
    return _packed_entries(form, N, K)


def stored_bytes(entries: Entries) -> int:
    """Bytes of ``entries``."""
    total = 0
    for _, dtype, shape in entries:
        elements = 1
        for side in shape:
            elements *= side
        total += elements_bytes(elements, dtype)
    return total


def _fp8_channel(N: int, K: int) -> Entries:
    return [("weight", "F8_E4M3", (N, K)), ("weight_scale", "F32", (N, 1))]


def _fp8_tensor(N: int, K: int) -> Entries:
    return [("weight", "F8_E4M3", (N, K)), ("weight_scale", "F32", ()), ("input_scale", "F32", ())]


def _mxfp8(N: int, K: int) -> Entries:
    return [("weight", "F8_E4M3", (N, K)), ("weight_scale_inv", "U8", (N, -(-K // GROUP)))]


def _mxfp4(N: int, K: int) -> Entries:
    return [("weight_packed", "U8", (N, -(-K // 2))), ("weight_scale", "U8", (N, -(-K // GROUP)))]


def _nvfp4(N: int, K: int) -> Entries:
    return [
        ("weight", "U8", (N, -(-K // 2))),
        ("weight_scale", "F8_E4M3", (N, -(-K // NVFP4_GROUP))),
        ("weight_scale_2", "F32", ()),
        ("input_scale", "F32", ()),
    ]


_ENTRIES: dict[str, Callable[[int, int], Entries]] = {
    "fp8_channel": _fp8_channel,
    "fp8_tensor": _fp8_tensor,
    "mxfp8": _mxfp8,
    "mxfp4": _mxfp4,
    "nvfp4": _nvfp4,
}


def _packed_entries(form: str, N: int, K: int) -> Entries:
    """Integers packed into int32: compressed-tensors, GPTQ and AWQ."""
    packed = packed_format(form)
    per_word, groups = 32 // packed.bits, packed.groups(K)
    if packed.method == "int":
        entries: Entries = [
            ("weight_packed", "I32", (N, -(-K // per_word))),
            ("weight_scale", "BF16", (N, groups)),
            ("weight_shape", "I32", (2,)),
        ]
        return entries
    zeros = ("qzeros", "I32", (groups, -(-N // per_word)))
    scales = ("scales", "F16", (groups, N))
    if packed.method == "gptq":
        weights = ("qweight", "I32", (-(-K // per_word), N))
        return [weights, zeros, scales, ("g_idx", "I32", (K,))]
    return [("qweight", "I32", (K, -(-N // per_word))), zeros, scales]


_BOOKKEEPING = frozenset(
    (
        "g_idx", "input_global_scale", "input_scale", "inv_freq", "k_scale", "qzeros", "scale", "scales",
        "v_scale", "weight_global_scale", "weight_scale", "weight_scale_2", "weight_scale_inv",
        "weight_shape", "weight_zero_point",
    )
)  # fmt: skip
_BOOKKEEPING_ENDS = (
    "_scales",
    "_scale_inv",
    "_weight_scale",
    "_weight_scale_2",
    "_input_scale",
    "proj_scale",
)


def tensor_parameters(tensor: StoredTensor, bits: int) -> int:
    """Model parameters that ``tensor`` holds: packed weights of ``bits`` count each, scales none."""
    kind = tensor.name.rsplit(".", 1)[-1]
    if kind in _BOOKKEEPING or kind.endswith(_BOOKKEEPING_ENDS):
        return 0
    if kind in ("weight_packed", "qweight"):
        return tensor.elements * _WORD_BITS.get(tensor.dtype, 8) // bits
    if kind.endswith("_blocks") or (kind == "weight" and tensor.dtype in ("U8", "I8")):
        return tensor.elements * 2
    return tensor.elements


_WORD_BITS = {"I32": 32, "U32": 32, "U8": 8, "I8": 8}
