"""The base of a step by rates: worked out for the tiny model, and what grows with what."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import tiny_cost, tiny_model

from placer.hbm import ServerSettings
from placer.level_cost import step_load
from placer.profiler.base import step_base_us
from placer.profiler.cost import GpuRates
from placer.profiler.step_load import StepLoad
from placer.profiler.steps import StepKind
from placer.workload import Workload

RATES = replace(tiny_cost().rates, bytes_per_s=1e30, bf16_flops=1e12)
"""Reading is free, a million operations take a microsecond, a layer's kernels 10."""


def base_us(folder: Path, load: StepLoad, rates: GpuRates = RATES, tp: int = 1) -> float:
    return step_base_us(tiny_model(folder), rates, load, tp=tp, kv_dtype="bf16")


def test_products_and_pairs_of_a_chunk(tmp_path: Path) -> None:
    # Four layers: q and o 256·256 each, k and v 128·256 each, the router 8·256, norms 2·256 + 2·64; the last norm.
    body = 4 * (2 * 256 * 256 + 2 * 128 * 256 + 8 * 256 + 2 * 256 + 2 * 64) + 256
    head = 512 * 256
    # 100 tokens that each see 1000: four heads of 64 + 64, two operations per pair, four layers.
    pairs = 100 * 1000 * 4 * 4 * 2 * (64 + 64)
    expected = 40.0 + (2 * body * 100 + 2 * head + pairs) / 1e6
    assert base_us(tmp_path, StepLoad(0, 0, 100, 1000)) == pytest.approx(expected)


def test_attention_of_a_prompt_grows_with_its_square(tmp_path: Path) -> None:
    # A prompt in one chunk: its tokens see half of it.
    def attention_us(prompt: int) -> float:
        return base_us(tmp_path, StepLoad(0, 0, prompt, prompt // 2)) - base_us(
            tmp_path, StepLoad(0, 0, prompt, 0)
        )

    assert attention_us(4000) == pytest.approx(4 * attention_us(2000))


def test_a_mixed_step_reads_weights_once_and_every_cache(tmp_path: Path) -> None:
    rates = replace(RATES, bytes_per_s=1e9, bf16_flops=1e30)
    decode, chunk = StepLoad(8, 500), StepLoad(0, 0, 64, 200)
    both = StepLoad(8, 500, 64, 200)
    nothing = StepLoad(0, 0, 0, 0)
    together = base_us(tmp_path, both, rates)
    # The weights' reads and the layers' kernels are what both have in common.
    assert together == pytest.approx(
        base_us(tmp_path, decode, rates) + base_us(tmp_path, chunk, rates) - base_us(tmp_path, nothing, rates)
    )


@given(
    batch=st.integers(0, 64),
    context=st.integers(0, 4000),
    chunk=st.integers(0, 512),
    seen=st.integers(0, 4000),
)
def test_no_load_makes_a_step_shorter(
    tmp_path_factory: pytest.TempPathFactory, batch: int, context: int, chunk: int, seen: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "tiny"
    rates = replace(RATES, bytes_per_s=1e9)
    least = base_us(folder, StepLoad(batch, context, chunk, seen), rates)
    for more in ((batch + 1, context, chunk, seen), (batch, context + 1, chunk, seen),
                 (batch, context, chunk + 1, seen), (batch, context, chunk, seen + 1)):  # fmt: skip
        assert base_us(folder, StepLoad(*more), rates) >= least


def test_what_a_step_of_each_kind_holds() -> None:
    settings = ServerSettings(max_running_requests=4, kv_tokens=64, chunk_tokens=16, kv_dtype="bf16")
    workload = Workload(prompt_tokens=100, output_tokens=20, concurrency=4)
    # A decoding request holds 100 + 20/2 tokens on average, a token of a prompt sees half of 100.
    assert step_load(StepKind.DECODE, 4, settings, workload) == StepLoad(4, 110, 0, 50)
    assert step_load(StepKind.PREFILL, 16, settings, workload) == StepLoad(0, 110, 16, 50)
    assert step_load(StepKind.MIXED, 20, settings, workload) == StepLoad(4, 110, 16, 50)
    with pytest.raises(ValueError, match="cannot hold 4"):
        step_load(StepKind.MIXED, 3, settings, workload)
