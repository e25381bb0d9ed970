"""How fast the CPU's expert kernels compute, per core and cycle, as far as anybody timed them."""

from dataclasses import dataclass

from placer.kernels.expert_shape import ExpertShape

AMX_FLAG = "amx_tile"


@dataclass(frozen=True)
class KernelRate:
    """What one core does in one regime of a kernel.

    Attributes
    ----------
    ops_per_cycle
        Operations (two per weight and row) of whole tiles, per core and cycle.
    expert_rows
        What an expert costs before its rows: unpacking its weights once, in rows of the speed above.
    tile, residue_tiles
        Rows handled at a time, and what 0 to tile - 1 rows beyond whole tiles cost, in whole tiles.
    fixed_us, token_us_per_hidden
        Of a call: entering and leaving it, and quantising and merging one value of one token on one core.
    source
        Where the figures come from.
    """

    ops_per_cycle: float
    expert_rows: float
    tile: int
    residue_tiles: tuple[float, ...]
    source: str
    fixed_us: float = 25.0
    token_us_per_hidden: float = 1e-3


@dataclass(frozen=True)
class ColdKernel:
    """One CPU method: its format, and its rates below and beyond its border, on cores with AVX-512.

    Attributes
    ----------
    method, backend
        As profiles name them.
    format
        Bytes of an expert (`placer.model.formats.expert_bytes`).
    few, many
        Rates up to the border and beyond it; ``many`` None where the kernel has one regime.
    many_amx
        Rate beyond the border on cores with AMX, where it differs.
    border_tokens
        Last tokens of a call of the first regime; None for 4·E/k, as kt-kernel's AMX classes choose.
    block_columns
        Output columns of a matrix that one thread takes at a time: N_BLOCK of kt-kernel's kernel classes
        (operators/amx/la/amx_kernels.hpp and amx_raw_kernels.hpp); assumed for the others.
    """

    method: str
    backend: str
    format: str
    few: KernelRate
    many: KernelRate | None
    many_amx: KernelRate | None = None
    border_tokens: int | None = None
    block_columns: int = 256

    def border(self, shape: ExpertShape) -> int | None:
        """Last tokens of a call of the first regime; None where there is one regime only."""
        if self.many is None:
            return None
        return 4 * shape.experts // shape.top_k if self.border_tokens is None else self.border_tokens

    def beyond(self, isa: tuple[str, ...]) -> KernelRate | None:
        """The rate beyond the border on cores with the instruction sets ``isa``."""
        return self.many_amx if self.many_amx is not None and AMX_FLAG in isa else self.many


_ONE_CORE = "timed on one core of an Emerald Rapids at 2.83 GHz without AMX"
_TWO_KINDS = f"{_ONE_CORE} (13.3) and of a Zen 4 (13.5)"
_ROW = KernelRate(13.4, 0.45, 1, (0.0,), f"row kernel {_TWO_KINDS}: the same per cycle on both")
_GEMM = KernelRate(
    35.0,
    2.2,
    4,
    (0.0, 0.65, 0.75, 1.43),
    f"four-row GEMM {_ONE_CORE} (35.7) and of a Zen 4 (33.9); three rows cost more than four on both",
    fixed_us=60.0,
)
_PACKED = KernelRate(
    31.8, 2.2, 1, (0.0,), f"slope per row of AMXINT4 {_ONE_CORE}; cost of an expert as RAWINT4's"
)
_PACKED_INT8 = KernelRate(31.8, 2.2, 1, (0.0,), "assumed to be AMXINT4's: its slope is not known")
_AMX_TILE = (0.0, *(1.0,) * 15)
_AMX_INT8 = KernelRate(
    370.0,
    0.0,
    16,
    _AMX_TILE,
    "ktransformers doc/en/AMX.md: 35 TOPS in INT8 on a Xeon of the fourth generation, taken as 34 cores at 2.8 GHz: "
    "18% of the tiles' peak (its issue 1214: below half of it at best); a tile has 16 rows",
    fixed_us=60.0,
)
_AMX_BF16 = KernelRate(
    220.0,
    0.0,
    16,
    _AMX_TILE,
    "ktransformers doc/en/AMX.md: 21 TFLOPS in bfloat16, taken as above; FP8 is widened to it first",
    fixed_us=60.0,
)

COLD_KERNELS = {
    kernel.method: kernel
    for kernel in (
        ColdKernel("RAWINT4", "kt", "rawint4", _ROW, _GEMM),
        ColdKernel("AMXINT4", "kt-amxint4", "amxint4", _PACKED, _PACKED, _AMX_INT8, block_columns=128),
        ColdKernel(
            "AMXINT8", "kt-amxint8", "amxint8", _PACKED_INT8, _PACKED_INT8, _AMX_INT8, block_columns=64
        ),
        ColdKernel(
            "LLAMAFILE",
            "kt-llamafile",
            "q4_k",
            KernelRate(16.2, 0.67, 1, (0.0,), f"Q4_K below ten tokens of a call, {_ONE_CORE}"),
            KernelRate(
                35.0, 0.3, 1, (0.0,), f"Q4_K from ten tokens of a call on, {_ONE_CORE}", fixed_us=60.0
            ),
            border_tokens=9,
        ),
        ColdKernel(
            "torch",
            "torch",
            "torch_int4",
            KernelRate(
                22.8,
                0.53,
                4,
                (0.0, 0.53, 0.68, 0.84),
                f"aten's INT4 product {_ONE_CORE}, bound by its bfloat16 dot products",
                fixed_us=130.0,
            ),
            None,
        ),
        ColdKernel(
            "FP8",
            "kt-fp8",
            "kt_fp8",
            KernelRate(
                13.4, 0.45, 1, (0.0,), "assumed to be RAWINT4's: no timing of kt-kernel's FP8 is known"
            ),
            KernelRate(
                35.0, 2.2, 1, (0.0,), "assumed to be RAWINT4's: no timing of kt-kernel's FP8 is known"
            ),
            _AMX_BF16,
            block_columns=128,
        ),
    )
}
"""By method. kt-kernel's FP8 is for comparing with servers that run it: placements cannot name it yet."""
