"""What the kernel of each CPU method needs, as data: known without loading torch or any kernel."""

from collections.abc import Mapping

from placer.kernels.cpu_needs import CpuNeeds

TORCH_INSTEAD = "use --cpu-kernel torch"
INT4_GROUP = 32
"""INT4 weights that share a scale."""
Q4K_BLOCK = 256
"""Weights of a block of GGUF's K-types."""
_RAWINT4_BLOCK = 128
"""With sizes that are no multiple of this RAWINT4 reads past the ends of its weights (seen with 2880: right results or
a segmentation fault, depending on what lies beside them in memory)."""

CPU_METHOD_NEEDS: Mapping[str, CpuNeeds] = {
    "RAWINT4": CpuNeeds(
        flags=("avx2",),
        multiple=_RAWINT4_BLOCK,
        because="kt-kernel's RAWINT4 would read out of the bounds of its weights",
        otherwise=TORCH_INSTEAD,
        cut_over_nodes=True,
    ),
    "LLAMAFILE": CpuNeeds(
        flags=("avx2",),
        multiple=Q4K_BLOCK,
        because="GGUF's K-types hold blocks of that many weights",
        otherwise=TORCH_INSTEAD,
        cut_over_nodes=True,
    ),
    "AMXINT8": CpuNeeds(
        flags=("avx512f", "avx512bw"),
        multiple=64,
        because="kt-kernel's AMXINT8 packs blocks of that many",
        otherwise=TORCH_INSTEAD,
        cut_over_nodes=True,
    ),
    "AMXINT4": CpuNeeds(
        flags=("avx512f", "avx512bw"),
        multiple=128,
        because="kt-kernel's AMXINT4 packs blocks of that many",
        otherwise=TORCH_INSTEAD,
        cut_over_nodes=True,
    ),
    "torch": CpuNeeds(
        flags=(),
        multiple=INT4_GROUP,
        because="INT4 weights share a scale in groups of that many",
        otherwise=f"no CPU kernel runs such sizes: give a model whose sizes {INT4_GROUP} divides",
    ),
}
"""By method, in the order in which a profile tries their backends."""
