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
    device_words
        Words that all appear in the name that CUDA reports.
    """

    name: str
    usable_bytes: int
    bandwidth_bytes_per_s: float
    bf16_flops: float
    fp8_flops: float
    pcie_bytes_per_s: float
    source: str
    device_words: tuple[str, ...]


_SEEN = "usable memory as CUDA reports it in public logs"
_ADA = f"NVIDIA Ada architecture whitepaper, dense; {_SEEN}"
_RTX_BLACKWELL = f"NVIDIA RTX Blackwell architecture whitepapers, dense; {_SEEN}"


def _gpu(
    name: str,
    device: str,
    usable_gib: float,
    bandwidth_gb: float,
    bf16: float,
    fp8: float,
    pcie_gb: float,
    source: str,
) -> GpuDatasheet:
    return GpuDatasheet(
        name=name,
        usable_bytes=int(usable_gib * GIB),
        bandwidth_bytes_per_s=bandwidth_gb * 1e9,
        bf16_flops=bf16 * 1e12,
        fp8_flops=fp8 * 1e12,
        pcie_bytes_per_s=pcie_gb * 1e9,
        source=source,
        device_words=tuple(device.split()),
    )


# name, words of its CUDA name, usable GiB, GB/s, BF16 and FP8 teraflops (dense, FP32 sums), PCIe GB/s, source.
# More telling names come first: "H100 PCIe" holds "H100" too.
_GPUS = (
    _gpu("rtx-4090", "RTX 4090", 23.5, 1008, 165.2, 330.3, 31.5, f"{_ADA} (lowest seen)"),
    _gpu("rtx-5090", "RTX 5090", 31.3, 1792, 209.5, 419.0, 63.0, _RTX_BLACKWELL),
    _gpu("rtx-6000-ada", "RTX 6000 Ada", 47.3, 960, 364.2, 728.5, 31.5, _ADA),
    _gpu(
        "rtx-6000-blackwell",
        "RTX PRO 6000 Blackwell",
        94.97,
        1792,
        503.8,
        1007.6,
        63.0,
        f"{_RTX_BLACKWELL}; Workstation Edition",
    ),
    _gpu("l40s", "L40S", 44.39, 864, 362.0, 733.0, 31.5, f"NVIDIA L40S datasheet, dense; {_SEEN}"),
    _gpu(
        "a100-80gb-pcie",
        "A100 80GB PCIe",
        79.15,
        1935,
        312.0,
        312.0,
        31.5,
        f"NVIDIA A100 PCIe 80GB datasheet, no FP8 units; {_SEEN}",
    ),
    _gpu(
        "a100-80gb",
        "A100 80GB",
        79.15,
        2039,
        312.0,
        312.0,
        31.5,
        f"NVIDIA A100 SXM 80GB datasheet, no FP8 units; {_SEEN}",
    ),
    _gpu(
        "h100-pcie", "H100 PCIe", 79.18, 2000, 756.0, 1513.0, 63.0, f"NVIDIA H100 datasheet, dense; {_SEEN}"
    ),
    _gpu(
        "h100-sxm",
        "H100 80GB HBM3",
        79.18,
        3350,
        989.0,
        1979.0,
        63.0,
        f"NVIDIA H100 datasheet, dense; {_SEEN}",
    ),
    _gpu("h200", "H200", 139.8, 4800, 989.0, 1979.0, 63.0, f"NVIDIA H200 datasheet, dense; {_SEEN}"),
    _gpu(
        "b200",
        "B200",
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


def datasheet_of_device(device: str) -> GpuDatasheet | None:
    """The datasheet of the GPU that CUDA calls ``device`` ("NVIDIA H100 80GB HBM3"), or None."""
    words = device.replace("-", " ").lower().split()
    for gpu in _GPUS:
        if all(word.lower() in words for word in gpu.device_words):
            return gpu
    return None


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
