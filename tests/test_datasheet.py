"""The table of GPUs: every row has a source, and figures that units, clocks and buses bear out."""

import pytest

from placer.datasheet import GPU_NAMES, behind, datasheet_of_device, gpu_datasheet
from placer.errors import BadInputError
from placer.units import GIB


@pytest.mark.parametrize("name", GPU_NAMES)
def test_every_row_is_sourced_and_plausible(name: str) -> None:
    gpu = gpu_datasheet(name)
    # Who says so, and what is said of the memory.
    assert gpu.source.startswith("NVIDIA ")
    assert "usable memory" in gpu.source
    # CUDA reports less than the vendor's figure, even where that means GiB, and no less than nine tenths of it.
    assert 0.9 * gpu.memory_gb * 1e9 < gpu.usable_bytes < gpu.memory_gb * GIB
    # Dense: FP8 is twice BF16 (a figure with sparsity beside one without would make it four times), or not there.
    ratio = gpu.fp8_flops / gpu.bf16_flops
    assert ratio == 1.0 if "no FP8 units" in gpu.source else ratio == pytest.approx(2.0, rel=0.02)
    # PCIe 4.0 and 5.0, one direction of sixteen lanes.
    assert gpu.pcie_bytes_per_s in (31.5e9, 63e9)


@pytest.mark.parametrize(
    ("name", "sms", "ghz", "operations"),
    [
        # SMs · boost GHz · dense BF16 operations per SM and clock; GeForce cards sum in FP32 at half the rate.
        ("rtx-3090", 82, 1.695, 512),
        ("rtx-a6000", 84, 1.8, 1024),
        ("rtx-4090", 128, 2.52, 512),
        ("rtx-5090", 170, 2.407, 512),
        ("rtx-6000-ada", 142, 2.505, 1024),
        ("rtx-6000-blackwell", 188, 2.617, 1024),
        ("a100-80gb-pcie", 108, 1.41, 2048),
        ("a100-80gb", 108, 1.41, 2048),
        ("h100-pcie", 114, 1.62, 4096),
        ("h100-sxm", 132, 1.83, 4096),
        ("h200", 132, 1.83, 4096),
    ],
)
def test_peaks_follow_from_units_and_clocks(name: str, sms: int, ghz: float, operations: int) -> None:
    assert gpu_datasheet(name).bf16_flops == pytest.approx(sms * ghz * 1e9 * operations, rel=0.002)


@pytest.mark.parametrize(
    ("name", "bits", "gbit_per_s"),
    [
        # Bus width and transfers per pin.
        ("rtx-3090", 384, 19.5),
        ("rtx-a6000", 384, 16.0),
        ("rtx-4090", 384, 21.0),
        ("rtx-5090", 512, 28.0),
        ("rtx-6000-ada", 384, 20.0),
        ("rtx-6000-blackwell", 512, 28.0),
        ("l40s", 384, 18.0),
        ("a100-80gb-pcie", 5120, 2 * 1.512),
        ("a100-80gb", 5120, 2 * 1.593),
        ("h100-sxm", 5120, 2 * 2.619),
        ("b200", 7680, 2 * 3.996),
    ],
)
def test_bandwidths_follow_from_the_bus(name: str, bits: int, gbit_per_s: float) -> None:
    assert gpu_datasheet(name).bandwidth_bytes_per_s == pytest.approx(bits * gbit_per_s * 1e9 / 8, rel=0.002)


def test_a_gpu_is_found_by_the_name_that_cuda_reports() -> None:
    for device, name in (
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-6000-blackwell"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA B200", "b200"),
    ):
        found = datasheet_of_device(device)
        assert found is not None
        assert found.name == name
    assert datasheet_of_device("NVIDIA GeForce GTX 1080") is None


def test_an_unknown_gpu_names_those_that_are_known() -> None:
    with pytest.raises(BadInputError, match="voodoo") as caught:
        gpu_datasheet("voodoo-2")
    assert "h200" in caught.value.hint


def test_a_slower_slot_sets_the_speed_of_the_link() -> None:
    fast, slow = gpu_datasheet("h100-sxm"), gpu_datasheet("rtx-4090")
    assert behind(fast, 4).pcie_bytes_per_s == 31.5e9
    assert behind(fast, 5) == fast
    assert behind(slow, 5) == slow
