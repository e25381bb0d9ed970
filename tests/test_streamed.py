"""Streamed experts: bytes over the link, what a cache saves, and how fetching and computing add up."""

from pathlib import Path

import numpy as np
import pytest
from small_traces import token_trace
from tiny_model import tiny_cost, tiny_model

from placer.hbm import ServerSettings
from placer.modes.gpu_only import GpuLayers
from placer.modes.layer_times import LayerTimes
from placer.modes.mode import Cache
from placer.modes.step_times import ModeTimes
from placer.modes.steps import ComparedSteps
from placer.modes.streamed import HitShares, StreamedLayers, expert_fetch_us, host_bytes
from placer.parallelism import Parallelism
from placer.profiler.factor import UNCALIBRATED, Factors
from placer.profiler.serving.server import Scheduler
from placer.profiler.steps import StepKind
from placer.profiler.trace.trace import TokenTrace
from placer.workload import Workload

EXPERT_BYTES = 3 * 256 * 128 + 3 * 2 * 4
"""FP8 weights and six float32 scales of `tiny_model`."""
SAME = token_trace([[[0, 1]] * 4] * 64, experts=8)
"""Every token needs experts 0 and 1 of every layer."""


def streamed(
    tmp_path: Path, trace: TokenTrace, fetch_us: float, slots: int, *, known: bool, groups: int = 1
) -> float:
    """Time of a decode step of one request, 5 + 2 · (2 + 1) = 11 µs of each of four layers being computation."""
    model, steps = tiny_model(tmp_path), ComparedSteps(trace, 0)
    layers = StreamedLayers(
        GpuLayers(tiny_cost().hot, steps, groups),
        steps,
        HitShares(model, trace if known else None, 0),
        fetch_us=fetch_us,
        slots=slots,
        groups=groups,
    )
    (time_us,) = set(layers(StepKind.DECODE, 1).step_us(UNCALIBRATED))
    return time_us


def test_an_expert_takes_its_share_of_bytes_over_each_link(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    # A link that takes one expert per microsecond.
    speed = EXPERT_BYTES * 1e6
    assert expert_fetch_us(model, speed, Parallelism(1)) == pytest.approx(1.0)
    assert expert_fetch_us(model, speed, Parallelism(2)) == pytest.approx(0.5)
    # Whole experts on each of two GPUs.
    assert expert_fetch_us(model, speed, Parallelism(2, ep=2)) == pytest.approx(1.0)


@pytest.mark.parametrize(("fetch_us", "layer_us"), [(1.0, 11.0), (10.0, 25.0)])
def test_without_a_cache_a_layer_takes_its_call_and_the_longer_of_reading_and_computing(
    tmp_path: Path, fetch_us: float, layer_us: float
) -> None:
    # Two experts are read: 2 or 20 µs beside the 6 that they compute, after the call of 5 that reads nothing.
    assert streamed(tmp_path, SAME, fetch_us, 0, known=False) == pytest.approx(4 * layer_us)


def test_under_uniform_routing_a_cache_of_half_the_experts_hits_half_of_what_is_needed(
    tmp_path: Path,
) -> None:
    # One of two experts is missing: 10 µs before 11.
    assert streamed(tmp_path, SAME, 10.0, 4, known=False) == pytest.approx(4 * 21.0)


def test_on_a_trace_the_cache_holds_what_it_held(tmp_path: Path) -> None:
    # Always the same two, and residents begin as experts 0 and 1: nothing is fetched.
    assert streamed(tmp_path, SAME, 10.0, 2, known=True) == pytest.approx(4 * 11.0)


def test_a_cache_of_all_experts_computes_like_gpus_alone(tmp_path: Path) -> None:
    assert streamed(tmp_path, SAME, 10.0, 8, known=False) == pytest.approx(4 * 11.0)


def test_groups_wait_for_the_gpu_that_fetches_most(tmp_path: Path) -> None:
    apart = token_trace([[[0, 4]] * 4] * 64, experts=8)
    # Experts 0 and 1 are of one group, 0 and 4 of two.
    assert streamed(tmp_path, SAME, 10.0, 0, known=False, groups=2) == pytest.approx(4 * 25.0)
    assert streamed(tmp_path, apart, 10.0, 0, known=False, groups=2) == pytest.approx(4 * 15.0)


def test_a_slow_link_slows_fetches_alone(tmp_path: Path) -> None:
    model, steps = tiny_model(tmp_path), ComparedSteps(SAME, 0)
    layers = StreamedLayers(
        GpuLayers(tiny_cost().hot, steps, 1),
        steps,
        HitShares(model, None, 0),
        fetch_us=10.0,
        slots=4,
        groups=1,
    )
    times = layers(StepKind.DECODE, 1)
    assert set(times.step_us(Factors(transfer=2.0))) == {4 * (11.0 + 20.0)}


def test_host_memory_holds_every_expert_and_what_pinning_rounds_up(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)
    assert host_bytes(model, Cache.LRU, Parallelism(1)) == {"experts": 4 * 8 * EXPERT_BYTES}
    # Of a layer, gate and up take 524,416 bytes and down half of that: pinned as 2^20 and 2^19.
    lines = host_bytes(model, Cache.NONE, Parallelism(1))
    assert lines["experts"] + lines["pinned_rounding"] == 4 * (2**20 + 2**19)


def test_layer_times_of_a_size_are_made_once_for_all_simulated_steps(tmp_path: Path) -> None:
    asked = []

    def layers_of(kind: StepKind, size: int) -> LayerTimes:
        asked.append((kind, size))
        return LayerTimes(np.ones((2, 4)), np.zeros((2, 4)), overlapped=True)

    model, settings = tiny_model(tmp_path), ServerSettings(4, 1024, 64, "bf16")
    times = ModeTimes(model, tiny_cost(), layers_of, Workload(64, 16, 4), tp=1, scheduler=Scheduler.SGLANG)
    for seed in (0, 1):
        simulated = times.step_times(settings, UNCALIBRATED, seed)
        for size in (1, 2, 3, 4):
            simulated.decode_us(size, 0, 1)
        for size in (17, 20, 33, 64):
            simulated.prefill_us(0, size, 0)
    assert len(asked) == len(set(asked))


def test_a_vllm_step_that_others_share_holds_less_of_a_prompt(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)

    def layers_of(_kind: StepKind, _size: int) -> LayerTimes:
        return LayerTimes(np.full((2, 4), 100.0), np.zeros((2, 4)), overlapped=True)

    def prompt_us(scheduler: Scheduler, chunk: int) -> float:
        times = ModeTimes(model, tiny_cost(), layers_of, Workload(64, 16, 4), tp=1, scheduler=scheduler)
        return times.prefill_us(ServerSettings(4, 1024, chunk, "bf16"))

    # A step takes 4 * 100 of experts and its base: of 64 tokens three go to the requests that decode.
    assert prompt_us(Scheduler.VLLM, 67) == prompt_us(Scheduler.SGLANG, 64)
    assert prompt_us(Scheduler.VLLM, 64) > prompt_us(Scheduler.VLLM, 67) + 0.9 * 400.0
