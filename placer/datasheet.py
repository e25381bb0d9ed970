"""GPUs as their datasheets describe them: memory, bandwidth and peak arithmetic, each with its source."""

from dataclasses import dataclass

from placer.errors import BadInputError
from placer.units import GIB


@dataclass(frozen=True)
class GpuDatasheet:
    """One GPU model.

    Attributes
    ----------
    name
        The name that ``--gpu`` takes.
    usable_bytes
        What a CUDA process sees as total memory (less than the vendor's figure; see ``source``).
    bandwidth_bytes_per_s
        Vendor's peak memory bandwidth.
    bf16_flops, fp8_flops
        Vendor's dense tensor peaks with FP32 accumulation; ``fp8_flops`` equals ``bf16_flops`` on GPUs
        without FP8 units, where FP8 weights are widened before the product.
    pcie_bytes_per_s
        One direction of the host link at its x16 peak.
    source
        Where the figures come from.
    """

    name: str
    usable_bytes: int
    bandwidth_bytes_per_s: float
    bf16_flops: float
    fp8_flops: float
    pcie_bytes_per_s: float
    source: str


def _gpu(
    name: str, usable_gib: float, bandwidth_gb: float, bf16: float, fp8: float, pcie_gb: float, source: str
) -> GpuDatasheet:
    return GpuDatasheet(
        name, int(usable_gib * GIB), bandwidth_gb * 1e9, bf16 * 1e12, fp8 * 1e12, pcie_gb * 1e9, source
    )


_SEEN = "usable memory as CUDA reports it in public logs"

_GPUS = (
    _gpu(
        "rtx-4090",
        23.5,
        1008,
        165.2,
        330.3,
        31.5,
        f"NVIDIA Ada architecture whitepaper v2; {_SEEN} (lowest seen)",
    ),
    _gpu(
        "rtx-5090", 31.3, 1792, 209.5, 419.0, 63.0, f"NVIDIA RTX Blackwell architecture whitepaper; {_SEEN}"
    ),
    _gpu("rtx-6000-ada", 47.3, 960, 364.2, 728.5, 31.5, f"NVIDIA RTX 6000 Ada datasheet, dense; {_SEEN}"),
    _gpu("l40s", 44.39, 864, 362.0, 733.0, 31.5, f"NVIDIA L40S datasheet, dense; {_SEEN}"),
    _gpu(
        "a100-80gb", 79.15, 2039, 312.0, 312.0, 31.5, f"NVIDIA A100 SXM 80GB datasheet, no FP8 units; {_SEEN}"
    ),
    _gpu("h100-pcie", 79.18, 2000, 756.0, 1513.0, 63.0, f"NVIDIA H100 datasheet, dense; {_SEEN}"),
    _gpu("h100-sxm", 79.18, 3350, 989.0, 1979.0, 63.0, f"NVIDIA H100 datasheet, dense; {_SEEN}"),
    _gpu("h200", 139.8, 4800, 989.0, 1979.0, 63.0, f"NVIDIA H200 datasheet, dense; {_SEEN}"),
    _gpu(
        "b200",
        178.35,
        7672,
        2250.0,
        4500.0,
        63.0,
        f"NVIDIA B200 datasheet, dense; bandwidth from the driver; {_SEEN}",
    ),
)

GPU_NAMES = tuple(gpu.name for gpu in _GPUS)
"""Names that ``--gpu`` takes."""


def gpu_datasheet(name: str) -> GpuDatasheet:
    """The datasheet of the GPU called ``name``.

    Raises
    ------
    BadInputError
        When no such GPU is listed; the hint names those that are.
    """
    for gpu in _GPUS:
        if gpu.name == name.lower():
            return gpu
    raise BadInputError(f"unknown GPU {name!r}", f"use one of: {', '.join(GPU_NAMES)}")
