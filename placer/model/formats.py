"""Bytes of one expert in every precision: gate and up are [width, H], down [H, width]."""

from collections.abc import Callable

from placer.errors import BadInputError

FP8_BLOCK = (128, 128)
"""Weights per scale of the block-FP8 kernels, rows by columns."""
GROUP = 32
"""Weights per scale of the 4-bit formats, along K."""


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


def int4_g32_bytes(N: int, K: int) -> int:
    """Half a byte per weight, one bf16 scale per 32, and the two int32 of ``weight_shape``.

    compressed-tensors, pack-quantized.
    """
    return N * K // 2 + 2 * N * -(-K // GROUP) + 8


def rawint4_bytes(N: int, K: int) -> int:
    """Half a byte per weight and one float32 scale per 32: kt-kernel's RAWINT4 buffers.

    Source: kt-kernel operators/amx/k2-moe.hpp, BufferBInt4KGroupImpl, which widens the scales it loads.
    """
    return N * K // 2 + 4 * N * -(-K // GROUP)


def torch_int4_bytes(N: int, K: int) -> int:
    """Half a byte per weight and a bf16 scale and zero per 32 (aten::_weight_int4pack_mm_for_cpu)."""
    return N * K // 2 + 2 * 2 * N * -(-K // GROUP)


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
    "int4_g32": int4_g32_bytes,
    "rawint4": rawint4_bytes,
    "torch_int4": torch_int4_bytes,
    "kt_fp8": kt_fp8_bytes,
}
_AMX_WEIGHT_BITS = {"amxint4": 4, "amxint8": 8}

EXPERT_FORMATS = (*_MATRIX_BYTES, *_AMX_WEIGHT_BITS)
"""Names that `expert_bytes` takes."""


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
    if name not in _MATRIX_BYTES:
        raise BadInputError(f"unknown expert format {name!r}", f"use one of {', '.join(EXPERT_FORMATS)}")
    matrix_bytes = _MATRIX_BYTES[name]
    return 2 * matrix_bytes(width, H) + matrix_bytes(H, width)
