"""The datasheet roofline: bytes below the ridge, arithmetic above it."""

from pathlib import Path

import numpy as np
import pytest
from tiny_model import tiny_model

from placer.datasheet import GPU_NAMES, datasheet_of_device, gpu_datasheet
from placer.errors import BadInputError
from placer.profiler.base import decode_base_us
from placer.profiler.cost import Provenance
from placer.profiler.roofline import roofline_hot, roofline_rates


def test_an_expert_costs_its_bytes_or_its_arithmetic(tmp_path: Path) -> None:
    model, gpu = tiny_model(tmp_path), gpu_datasheet("rtx-4090")
    hot = roofline_hot(gpu, model, 1)
    # H 256, I 128: 98,304 weights and 6 scales of 4 bytes at 0.75 · 1008 GB/s.
    read_us = (3 * 256 * 128 + 3 * 2 * 4) / (0.75 * 1008e9) * 1e6
    row_us = 6 * 256 * 128 / (0.5 * 330.3e12) * 1e6
    cost = hot.expert_us(np.array([[[0, 1, 1_000]]]), np.array([1]))[0, 0]
    assert cost.tolist() == pytest.approx([0.0, read_us, 1_000 * row_us])
    assert hot.provenance is Provenance.DATASHEET


def test_tp_divides_an_expert(tmp_path: Path) -> None:
    model, gpu = tiny_model(tmp_path), gpu_datasheet("h100-sxm")
    whole, half = roofline_hot(gpu, model, 1).regimes[0], roofline_hot(gpu, model, 2).regimes[0]
    assert half.floor_us == pytest.approx(whole.floor_us / 2)


def test_the_base_of_a_decode_step_grows_with_batch_and_context(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    rates = roofline_rates(gpu_datasheet("rtx-4090"), model, 1)

    def base(batch: int, context: int) -> float:
        return decode_base_us(model, rates, tp=1, batch=batch, context_tokens=context, kv_dtype="bf16")

    # 4 layers · 2 KV heads · 64 · 2 (K and V) · 2 bytes = 2,048 bytes per token.
    kv_us = 2_048 / rates.bytes_per_s * 1e6
    assert base(8, 1000) - base(4, 1000) == pytest.approx(4 * 1000 * kv_us)
    assert base(4, 2000) - base(4, 1000) == pytest.approx(4 * 1000 * kv_us)
    assert base(1, 1) > 4 * 30.0


def test_every_gpu_is_plausible() -> None:
    for name in GPU_NAMES:
        gpu = gpu_datasheet(name)
        assert gpu.source
        assert 20 * 2**30 < gpu.usable_bytes < 200 * 2**30
        assert gpu.bf16_flops <= gpu.fp8_flops


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
        ("NVIDIA B200", "b200"),
    ):
        found = datasheet_of_device(device)
        assert found is not None
        assert found.name == name
    assert datasheet_of_device("NVIDIA GeForce GTX 1080") is None


def test_peaks_follow_from_units_and_clocks() -> None:
    # SMs · boost GHz · operations per SM and clock; GeForce cards sum in FP32 at half the rate.
    for name, sms, ghz, operations in (
        ("rtx-4090", 128, 2.52, 512),
        ("rtx-5090", 170, 2.407, 512),
        ("rtx-6000-ada", 142, 2.505, 1024),
        ("rtx-6000-blackwell", 188, 2.617, 1024),
    ):
        assert gpu_datasheet(name).bf16_flops == pytest.approx(sms * ghz * 1e9 * operations, rel=0.002)


def test_an_unknown_gpu_names_those_that_are_known() -> None:
    with pytest.raises(BadInputError, match="voodoo") as caught:
        gpu_datasheet("voodoo-2")
    assert "h200" in caught.value.hint
