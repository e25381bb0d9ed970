"""The datasheet roofline: bytes below the ridge, arithmetic above it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_model import tiny_model

from placer.datasheet import gpu_datasheet
from placer.profiler.base import step_base_us
from placer.profiler.cost import Provenance
from placer.profiler.roofline import roofline_hot, roofline_rates, sums_us
from placer.profiler.step_load import StepLoad


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
        return step_base_us(model, rates, StepLoad(batch, context), tp=1, kv_dtype="bf16")

    # 4 layers · 2 KV heads · 64 · 2 (K and V) · 2 bytes = 2,048 bytes per token.
    kv_us = 2_048 / rates.bytes_per_s * 1e6
    assert base(8, 1000) - base(4, 1000) == pytest.approx(4 * 1000 * kv_us)
    assert base(4, 2000) - base(4, 1000) == pytest.approx(4 * 1000 * kv_us)
    assert base(1, 1) > 4 * 30.0


def test_four_bit_experts_read_less_and_compute_in_bf16(tmp_path: Path) -> None:
    model, gpu = replace(tiny_model(tmp_path), gpu_format="mxfp4_f32"), gpu_datasheet("rtx-4090")
    hot = roofline_hot(gpu, model, 1).regimes[0]
    assert hot.floor_us == pytest.approx(3 * 256 * 128 * 0.625 / (0.75 * 1008e9) * 1e6)
    assert hot.tile_us == pytest.approx(6 * 256 * 128 / (0.5 * 165.2e12) * 1e6)


def test_sums_over_gpus_take_a_ring_of_the_faster_link(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    nvlink, pcie = gpu_datasheet("h100-sxm"), gpu_datasheet("rtx-4090")
    # Two sums per layer of 256 values in bf16; each of four GPUs sends 2 · 3/4 of them at 0.75 of the link.
    sent = 2 * (2 * 3 / 4) * (256 * 2)
    assert roofline_rates(nvlink, model, 4).layer_token_us == pytest.approx(sent / (0.75 * 450e9) * 1e6)
    assert roofline_rates(pcie, model, 4).layer_token_us == pytest.approx(sent / (0.75 * 31.5e9) * 1e6)
    assert roofline_rates(nvlink, model, 1).layer_token_us == 0.0


def test_a_sum_over_pcie_takes_longer_the_more_gpus_it_is_over() -> None:
    nvlink, pcie = gpu_datasheet("h100-sxm"), gpu_datasheet("rtx-4090")
    # Two sums per layer, each of 2 µs and 3 for each of 2 · (n - 1) steps: timed at 19 to 22 on four GPUs, 42 to 45
    # on eight and 36 on sixteen.
    assert [sums_us(pcie, gpus) / 2 for gpus in (2, 4, 8, 16)] == [8.0, 20.0, 44.0, 44.0]
    assert sums_us(None, 8) == sums_us(pcie, 8)
    assert [sums_us(nvlink, gpus) for gpus in (2, 8)] == [10.0, 10.0]
    assert [sums_us(gpu, 1) for gpu in (nvlink, pcie)] == [0.0, 0.0]


def test_the_base_of_a_step_pays_its_sums_over_gpus_by_token(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    rates = replace(roofline_rates(gpu_datasheet("rtx-4090"), model, 1), layer_token_us=2.0)
    free = replace(rates, layer_token_us=0.0)
    step = StepLoad(chunk_tokens=100, chunk_context_tokens=50)
    paid, unpaid = (step_base_us(model, each, step, tp=1, kv_dtype="bf16") for each in (rates, free))
    # Four layers, 100 tokens, 2 µs.
    assert paid - unpaid == pytest.approx(800.0)
