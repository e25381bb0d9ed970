"""Bytes of one expert in every precision: gate and up are [width, H], down [H, width]."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from placer.errors import BadInputError

FP8_BLOCK = (128, 128)
"""Weights per scale of the block-FP8 kernels, rows by columns."""
GROUP = 32
"""Weights per scale of the microscaling formats and of kt-kernel's 4-bit buffers, along K."""
NVFP4_GROUP = 16
"""Weights per scale of NVFP4, along K."""


def bf16_bytes(N: int, K: int) -> int:
    """Two bytes per weight."""
    return 2 * N * K


def f32_bytes(N: int, K: int) -> int:
    """Four bytes per weight."""
    return 4 * N * K


def fp8_block_bytes(N: int, K: int, *, block: tuple[int, int] = FP8_BLOCK, scale_bytes: int = 4) -> int:
    """One byte per weight and one scale per block; SGLang keeps the scales in float32.

    Source: sglang/srt/layers/quantization/fp8.py, create_weights. Some checkpoints store bf16 scales.
    """
    return N * K + -(-N // block[0]) * -(-K // block[1]) * scale_bytes


def fp8_channel_bytes(N: int, K: int) -> int:
    """One byte per weight and one float32 scale per output row (compressed-tensors, float-quantized)."""
    return N * K + 4 * N


def mxfp4_bytes(N: int, K: int) -> int:
    """Half a byte per weight and one byte-sized exponent per 32 of them (OCP Microscaling Formats 1.0)."""
    return N * K // 2 + N * -(-K // GROUP)


def mxfp4_f32_bytes(N: int, K: int) -> int:
    """Half a byte per weight and a float32 scale per 32: DeepSeek-V4's experts in SGLang, which widens the scales.

    Source: sglang/srt/layers/quantization/fp8.py, create_weights where ``is_fp4_expert``.
    """
    return N * K // 2 + 4 * N * -(-K // GROUP)


def mxfp8_bytes(N: int, K: int) -> int:
    """One byte per weight and one byte-sized exponent per 32 of them (OCP Microscaling Formats 1.0)."""
    return N * K + N * -(-K // GROUP)


def fp8_tensor_bytes(N: int, K: int) -> int:
    """One byte per weight, and the float32 scales of the matrix and of its input (modelopt, FP8)."""
    return N * K + 8


def nvfp4_bytes(N: int, K: int) -> int:
    """Half a byte per weight, an FP8 scale per 16, and the float32 scales of matrix and input (modelopt)."""
    return N * -(-K // 2) + N * -(-K // NVFP4_GROUP) + 8


@dataclass(frozen=True)
class PackedFormat:
    """Integers packed into 32-bit words.

    Attributes
    ----------
    method
        "int" (compressed-tensors, pack-quantized), "gptq" or "awq".
    bits
        Of one weight.
    group
        Weights per scale along K; None for one scale per output row.
    """

    method: str
    bits: int
    group: int | None

    def groups(self, K: int) -> int:
        """Scales of a row of K weights."""
        return 1 if self.group is None else -(-K // self.group)

    def matrix_bytes(self, N: int, K: int) -> int:
        """Bytes of a matrix [N, K].

        compressed-tensors: words along K, a bf16 scale per group, and the two int32 of ``weight_shape``.
        GPTQ: words along K, float16 scales, packed zeros, and an int32 per input that names its group.
        AWQ: words along N, float16 scales and packed zeros.
        """
        per_word, groups = 32 // self.bits, self.groups(K)
        if self.method == "int":
            return 4 * N * -(-K // per_word) + 2 * N * groups + 8
        zeros_and_scales = 4 * groups * -(-N // per_word) + 2 * groups * N
        if self.method == "gptq":
            return 4 * N * -(-K // per_word) + zeros_and_scales + 4 * K
        return 4 * K * -(-N // per_word) + zeros_and_scales


_PACKED = re.compile(r"(int|gptq|awq)([248])_(?:g([1-9][0-9]{0,5})|channel)")
PACKED_BITS = (2, 4, 8)


def packed_format(name: str) -> PackedFormat:
    """The format called ``name``: ``int4_g32``, ``gptq4_g128``, ``awq4_g128``, ``int8_channel``.

    Raises
    ------
    BadInputError
        When there is no such format.
    """
    match = _PACKED.fullmatch(name)
    if match is None:
        raise BadInputError(
            f"unknown expert format {name!r}",
            f"use one of {', '.join(EXPERT_FORMATS)}, or a packed one such as int4_g128 or gptq4_g128",
        )
    return PackedFormat(match[1], int(match[2]), int(match[3]) if match[3] else None)


def rawint4_bytes(N: int, K: int) -> int:
    """Half a byte per weight and one float32 scale per 32: kt-kernel's RAWINT4 buffers.

    Source: kt-kernel operators/amx/k2-moe.hpp, BufferBInt4KGroupImpl, which widens the scales it loads.
    """
    return N * K // 2 + 4 * N * -(-K // GROUP)


def torch_int4_bytes(N: int, K: int) -> int:
    """Half a byte per weight and a bf16 scale and zero per 32 (aten::_weight_int4pack_mm_for_cpu)."""
    return N * K // 2 + 2 * 2 * N * -(-K // GROUP)


def q4_k_bytes(N: int, K: int) -> int:
    """GGUF's Q4_K: 144 bytes per block of 256 weights along K."""
    return 144 * N * -(-K // 256)


def kt_fp8_bytes(N: int, K: int) -> int:
    """Block FP8 with float32 scales, each matrix rounded up to 64 bytes (kt-kernel amx_raw_buffers.hpp)."""
    return -(-fp8_block_bytes(N, K) // 64) * 64


_MATRIX_BYTES: dict[str, Callable[[int, int], int]] = {
    "f32": f32_bytes,
    "f16": bf16_bytes,
    "bf16": bf16_bytes,
    "fp8_block": fp8_block_bytes,
    "fp8_channel": fp8_channel_bytes,
    "mxfp4": mxfp4_bytes,
    "mxfp4_f32": mxfp4_f32_bytes,
    "fp8_tensor": fp8_tensor_bytes,
    "mxfp8": mxfp8_bytes,
    "nvfp4": nvfp4_bytes,
    "int4_g32": PackedFormat("int", 4, GROUP).matrix_bytes,
    "rawint4": rawint4_bytes,
    "torch_int4": torch_int4_bytes,
    "q4_k": q4_k_bytes,
    "kt_fp8": kt_fp8_bytes,
}
_AMX_WEIGHT_BITS = {"amxint4": 4, "amxint8": 8}

EXPERT_FORMATS = (*_MATRIX_BYTES, *_AMX_WEIGHT_BITS)
"""Names that `expert_bytes` takes, beside those of `packed_format`."""


def expert_bytes(name: str, *, H: int, width: int, numa_nodes: int = 1) -> int:
    """Bytes of one whole expert's three matrices in format ``name``, without biases.

    AMXINT4 and AMXINT8 hold a float32 scale per output row of every part. kt-kernel cuts gate and up along
    N over the NUMA nodes and down along K, so down pays its H scales once per node
    (operators/amx/amx_buffers.hpp).

    Raises
    ------
    BadInputError
        When the format is unknown.
    """
    if name in _AMX_WEIGHT_BITS:
        return 3 * H * width * _AMX_WEIGHT_BITS[name] // 8 + 4 * (2 * width + H * numa_nodes)
    matrix_bytes = _MATRIX_BYTES[name] if name in _MATRIX_BYTES else packed_format(name).matrix_bytes
    return 2 * matrix_bytes(width, H) + matrix_bytes(H, width)
