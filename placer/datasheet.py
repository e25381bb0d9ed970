"""GPUs as their datasheets describe them: memory, bandwidth and peak arithmetic, each with its source."""

from dataclasses import dataclass, replace

from placer.errors import BadInputError
from placer.known_name import unknown_name
from placer.units import GIB


@dataclass(frozen=True)
class GpuDatasheet:
    """One GPU model.

    Attributes
    ----------
    name
        The name that ``--gpu`` takes.
    memory_gb
        The vendor's figure, in the vendor's GB (which may be either of two).
    usable_bytes
        What a CUDA process sees as total memory, less than the vendor's figure.
    bandwidth_bytes_per_s
        Peak memory bandwidth.
    bf16_flops, fp8_flops
        Dense tensor peaks with FP32 accumulation (vendors lead with figures for 2:4 sparsity, twice as high);
        ``fp8_flops`` equals ``bf16_flops`` on GPUs without FP8 units, where FP8 weights are widened before the
        product.
    pcie_generation, pcie_bytes_per_s
        Of the host link, and one direction of it at its x16 peak.
    nvlink_bytes_per_s
        One direction of the links to all other GPUs of a server; 0 without any. Bridges, which join cards in
        pairs, are not counted.
    source
        Where arithmetic and bandwidth come from, and the usable memory.
    device_words
        Words that all appear in the name that CUDA reports.
    """

    name: str
    memory_gb: int
    usable_bytes: int
    bandwidth_bytes_per_s: float
    bf16_flops: float
    fp8_flops: float
    pcie_generation: int
    pcie_bytes_per_s: float
    nvlink_bytes_per_s: float
    source: str
    device_words: tuple[str, ...]


_SEEN = "usable memory as CUDA reports it in public logs"
_NVLINK = "NVLink of its generation, half of what is quoted for both directions"
_PCIE_X16_GB = {4: 31.5, 5: 63.0}
"""16 lanes of 16 or 32 GT/s in one direction, 128 of 130 bits of them data."""
_UNITS = "dense with FP32 sums, borne out by units and clock"
_ADA = f"NVIDIA Ada architecture whitepaper, {_UNITS}"
_GA102 = f"NVIDIA GA102 architecture whitepaper, {_UNITS}; no FP8 units"
_A100 = "NVIDIA A100 datasheet 1758950 (as quoted by glennklockwood.com), dense, no FP8 units"
_HOPPER = f"NVIDIA H100 architecture whitepaper (as quoted by glennklockwood.com), {_UNITS}"


def _gpu(
    name: str,
    device: str,
    memory_gb: int,
    usable_gib: float,
    bandwidth_gb: float,
    bf16: float,
    fp8: float,
    pcie_generation: int,
    source: str,
    *,
    nvlink_gb: float = 0.0,
) -> GpuDatasheet:
    return GpuDatasheet(
        name=name,
        memory_gb=memory_gb,
        usable_bytes=int(usable_gib * GIB),
        bandwidth_bytes_per_s=bandwidth_gb * 1e9,
        bf16_flops=bf16 * 1e12,
        fp8_flops=fp8 * 1e12,
        pcie_generation=pcie_generation,
        pcie_bytes_per_s=_PCIE_X16_GB[pcie_generation] * 1e9,
        nvlink_bytes_per_s=nvlink_gb * 1e9,
        source=f"{source}; {_SEEN}" + (f"; {_NVLINK}" if nvlink_gb else ""),
        device_words=tuple(device.split()),
    )


# Name, words of its CUDA name, the vendor's GB, usable GiB, GB/s, BF16 and FP8 teraflops (dense, FP32 sums),
# PCIe generation, source. More telling names come first: "H100 PCIe" holds "H100" too.
_GPUS = (
    _gpu("rtx-3090", "RTX 3090", 24, 23.68, 936, 71.2, 71.2, 4, _GA102),
    _gpu("rtx-4090", "RTX 4090", 24, 23.5, 1008, 165.2, 330.3, 4, f"{_ADA}; the lowest memory seen"),
    _gpu(
        "rtx-5090",
        "RTX 5090",
        32,
        31.3,
        1792,
        209.5,
        419.0,
        5,
        f"NVIDIA RTX Blackwell architecture whitepaper, {_UNITS}",
    ),
    _gpu("rtx-a6000", "RTX A6000", 48, 47.53, 768, 154.8, 154.8, 4, _GA102),
    _gpu("rtx-6000-ada", "RTX 6000 Ada", 48, 47.3, 960, 364.2, 728.5, 4, _ADA),
    _gpu(
        "rtx-6000-blackwell",
        "RTX PRO 6000 Blackwell",
        96,
        94.97,
        1792,
        503.8,
        1007.6,
        5,
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition datasheet 3519208: 1792 GB/s, 4000 sparse FP4 TOPS, of "
        "which dense FP8 is a quarter and BF16 an eighth; digits from 188 SMs at 2.617 GHz, as hmc-tech.com lists "
        "them; the Max-Q and Server Editions are slower",
    ),
    _gpu(
        "l40s",
        "L40S",
        48,
        44.39,
        864,
        362.05,
        733.0,
        4,
        "NVIDIA L40S datasheet (as quoted by mullet.se), dense: 733 is its BF16 with sparsity and its FP8 without",
    ),
    _gpu(
        "a100-80gb-pcie",
        "A100 80GB PCIe",
        80,
        79.15,
        1935,
        312.0,
        312.0,
        4,
        f"{_A100}; bandwidth of its PCIe column as quoted by thundercompute.com",
    ),
    _gpu("a100-80gb", "A100 80GB", 80, 79.15, 2039, 312.0, 312.0, 4, _A100, nvlink_gb=300),
    _gpu(
        "h100-pcie",
        "H100 PCIe",
        80,
        79.18,
        2000,
        756.5,
        1513.0,
        5,
        f"NVIDIA H100 PCIe product brief PB-11133-001 (above 2,000 GB/s); arithmetic {_UNITS}",
    ),
    _gpu("h100-sxm", "H100 80GB HBM3", 80, 79.18, 3350, 989.4, 1978.9, 5, _HOPPER, nvlink_gb=450),
    _gpu(
        "h20",
        "H20",
        96,
        95.0,
        4000,
        148.0,
        296.0,
        5,
        "NVIDIA H20 of 96 GB, as quoted by willitrunai.com and zangshuxian.com; dense",
        nvlink_gb=450,
    ),
    _gpu(
        "h200",
        "H200",
        141,
        139.8,
        4800,
        989.4,
        1978.9,
        5,
        f"{_HOPPER}; bandwidth of the H200 datasheet",
        nvlink_gb=450,
    ),
    _gpu(
        "b200",
        "B200",
        180,
        178.35,
        7672,
        2250.0,
        4500.0,
        5,
        "NVIDIA HGX B200 specifications (as quoted by glennklockwood.com), dense; bandwidth as the driver gives it, "
        "7680 bits at 3996 MHz (pytorch/ao pull request 4002)",
        nvlink_gb=900,
    ),
)

GPU_NAMES = tuple(gpu.name for gpu in _GPUS)
"""Names that ``--gpu`` takes."""


def behind(gpu: GpuDatasheet, pcie_generation: int) -> GpuDatasheet:
    """``gpu`` in a host whose slots are of ``pcie_generation``: the slower of both sets the link's speed."""
    slot = _PCIE_X16_GB[pcie_generation] * 1e9
    return gpu if slot >= gpu.pcie_bytes_per_s else replace(gpu, pcie_bytes_per_s=slot)


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
    device = datasheet_of_device(name)
    if device is not None:
        raise BadInputError(f"unknown GPU {name!r:.60}", f"did you mean {device.name}?")
    raise unknown_name("GPU", name, GPU_NAMES)


def larger_gpu(usable_bytes: int) -> GpuDatasheet | None:
    """The GPU with the least memory that is at least a tenth above ``usable_bytes``, or None."""
    larger = [gpu for gpu in _GPUS if gpu.usable_bytes >= 1.1 * usable_bytes]
    return min(larger, key=lambda gpu: gpu.usable_bytes, default=None)
