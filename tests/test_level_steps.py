"""Steps of every size at a level, on costs that can be worked out by hand."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_traces import count_trace, token_trace
from tiny_model import line, tiny_cost, tiny_model

from placer.errors import BadInputError
from placer.hbm import ServerSettings
from placer.level_cost import level_costs, step_costs
from placer.level_steps import LevelSteps
from placer.profiler.cost import CostModel
from placer.profiler.factor import Factors
from placer.profiler.serving.graph_batch import (
    captured_batches,
    decode_graphs,
    padded_batch,
    vllm_captured_batches,
)
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.simulation import simulate
from placer.profiler.serving.traffic import closed_loop, spread_lengths
from placer.profiler.steps import StepKind, Steps
from placer.profiler.trace.trace import Phase, TokenTrace
from placer.replays import Replays
from placer.runtime_behaviour import RuntimeBehaviour
from placer.step_parts import step_parts
from placer.workload import Workload

WORKLOAD = Workload(prompt_tokens=16, output_tokens=8, concurrency=6)
SETTINGS = ServerSettings(max_running_requests=6, kv_tokens=256, chunk_tokens=16, kv_dtype="bf16")
COLD = np.zeros((4, 8), dtype=bool)
BASE = 40.0
"""Four layers of 10 µs of fixed kernels; bytes cost next to nothing on this GPU."""


def one_expert_trace() -> TokenTrace:
    """40 prompt and 40 decode tokens; every token chooses experts 0 and 1 in all four layers."""
    ids = np.zeros((80, 4, 2), dtype=np.uint16)
    ids[:, :, 1] = 1
    phase = [Phase.PREFILL] * 40 + [Phase.DECODE] * 40
    return token_trace(ids, experts=8, phase=phase)


def level_steps(
    tmp_path: Path,
    cost: CostModel | None = None,
    settings: ServerSettings = SETTINGS,
    scheduler: Scheduler = Scheduler.SGLANG,
) -> LevelSteps:
    return LevelSteps(
        tiny_model(tmp_path),
        cost or tiny_cost(),
        Replays(one_expert_trace(), 0, "trace"),
        settings,
        WORKLOAD,
        1,
        {"cold": COLD, "hot": ~COLD},
        scheduler,
    )


def cold_us(rows: int, *, expert: float = 100.0) -> float:
    """Four layers of 20 + 2 experts with ``rows`` rows of 10 µs each."""
    return 4 * (20.0 + 2 * (expert + 10.0 * rows))


def test_graphs_are_captured_at_the_runtimes_sizes() -> None:
    graphs = captured_batches(64)
    assert graphs == (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64)
    assert [padded_batch(requests, graphs) for requests in (1, 3, 5, 13, 57, 64)] == [1, 4, 8, 16, 64, 64]
    # Beyond the largest graph a step runs as it is.
    assert padded_batch(65, graphs) == 65


def test_vllms_graphs_reach_twice_the_requests_and_hold_their_number() -> None:
    assert vllm_captured_batches(5, 2048) == (1, 2, 4, 5, 8)
    assert vllm_captured_batches(12, 2048) == (1, 2, 4, 8, 12, 16, 24)
    # No step holds more than eight tokens.
    assert vllm_captured_batches(12, 8) == (1, 2, 4, 8)
    assert vllm_captured_batches(600, 8192)[-3:] == (480, 496, 512)
    # Eleven requests of at most 16 run as 12 in SGLang's graphs and as 16 in vLLM's.
    assert [padded_batch(11, decode_graphs(each, 16, 512)) for each in Scheduler] == [12, 16]


@pytest.mark.parametrize("requests", [1, 2, 3, 4, 5, 6])
def test_a_decode_step_computes_its_own_rows(tmp_path: Path, requests: int) -> None:
    # Linear in rows, so that sizes between replayed ones are exact.
    times = level_steps(tmp_path).step_times("cold", seed=0)
    assert times.decode_us(requests, 0, 3).tolist() == pytest.approx([cold_us(requests) + BASE] * 3, rel=1e-3)


def test_a_padded_step_runs_the_algorithm_of_its_graph(tmp_path: Path) -> None:
    # Up to 3 tokens experts take 100 µs, beyond that 50. Three requests run in the graph of 4.
    few = replace(line(20.0, 100.0, 10.0), max_tokens=3)
    many = replace(line(20.0, 50.0, 10.0), min_tokens=4)
    cost = tiny_cost()
    cost = replace(cost, cold=replace(cost.cold, regimes=(few, many)))
    times = level_steps(tmp_path, cost).step_times("cold", seed=0)
    for requests, expert in ((2, 100.0), (3, 50.0), (4, 50.0), (5, 50.0)):
        expected = cold_us(requests, expert=expert) + BASE
        assert times.decode_us(requests, 0, 1)[0] == pytest.approx(expected, rel=1e-3)
    # A chunk is not padded: three tokens stay with the first algorithm, four take the second.
    for tokens, expert in ((3, 100.0), (4, 50.0), (9, 50.0), (16, 50.0)):
        expected = cold_us(tokens, expert=expert) + BASE
        assert times.prefill_us(0, tokens, 0) == pytest.approx(expected, rel=1e-3)


def test_the_levels_own_steps_are_taken_as_they_are(tmp_path: Path) -> None:
    model, cost = tiny_model(tmp_path), tiny_cost()
    rows = np.array([[[6, 6, 0, 0, 0, 0, 0, 0]] * 4, [[12, 0, 0, 0, 0, 0, 0, 0]] * 4], dtype=np.int32)
    decode = Steps(rows, np.array([6, 6]), StepKind.DECODE)
    steps = level_steps(tmp_path)
    steps.known(level_costs(model, cost, decode, None, SETTINGS, WORKLOAD, 1))
    found = steps.times(StepKind.DECODE, 6, "cold", Factors())
    assert found.layers_us.tolist() == [cold_us(6), 4 * (20.0 + 100.0 + 120.0)]
    # Without prompts in them, prompts take no time.
    assert steps.step_times("cold", seed=0).prefill_us(0, 16, 0) == 0.0


def test_each_placement_has_its_own_times_under_any_factors(tmp_path: Path) -> None:
    steps = level_steps(tmp_path)
    # All hot: 5 + 2 * (2 + 6) on the GPU, 20 for a call of the CPU that finds nothing.
    hot = steps.times(StepKind.DECODE, 6, "hot", Factors())
    assert hot.layers_us[0] == pytest.approx(4 * 21.0)
    slow = steps.times(StepKind.DECODE, 6, "hot", Factors(cold=2.0, base=3.0))
    assert slow.layers_us[0] == pytest.approx(4 * 40.0)
    assert slow.base_us == pytest.approx(3 * BASE, rel=1e-3)


def test_an_empty_job_of_the_cpu_can_be_skipped(tmp_path: Path) -> None:
    cost = replace(tiny_cost(), behaviour=RuntimeBehaviour(skip_idle_cold=True))
    found = level_steps(tmp_path, cost).times(StepKind.DECODE, 1, "hot", Factors())
    # 5 + 2 * (2 + 1) in place of the 20 of an idle call.
    assert found.layers_us[0] == pytest.approx(4 * 11.0)


def test_deferred_selections_run_beside_the_next_layer(tmp_path: Path) -> None:
    cost = replace(tiny_cost(), behaviour=RuntimeBehaviour(deferred_experts=1))
    found = level_steps(tmp_path, cost).times(StepKind.DECODE, 1, "cold", Factors())
    # Expert 0 at once, 20 + 110; expert 1 deferred, 130 more; 10 µs lie between layers. Layer 0 merges at 130, the CPU
    # is free at 260; then each layer's own 130 follow the 130 deferred before: merges at 390, 650; the last layer
    # defers nothing: free at 780, merged at 780 + 240. Each of the three deferred calls pays 20 once more, so with so
    # little to hide behind the step is longer than the 4 * 240 of all at once.
    assert found.layers_us[0] == pytest.approx(1020 - 3 * 10, rel=1e-3)


def test_counts_cannot_say_what_is_deferred(tmp_path: Path) -> None:
    cost = replace(tiny_cost(), behaviour=RuntimeBehaviour(deferred_experts=1))
    counted = count_trace(np.ones((4, 4, 8)), top_k=2)
    steps = LevelSteps(
        tiny_model(tmp_path),
        cost,
        Replays(counted, 0, "trace"),
        SETTINGS,
        WORKLOAD,
        1,
        {"cold": COLD},
        Scheduler.SGLANG,
    )
    with pytest.raises(BadInputError, match="--deferred-experts"):
        steps.times(StepKind.DECODE, 1, "cold", Factors())


def half_hot() -> np.ndarray:
    hot = COLD.copy()
    hot[:2] = True
    return hot


@pytest.mark.parametrize("deferred", [0, 1])
@pytest.mark.parametrize("mask", [lambda: COLD, lambda: ~COLD, half_hot], ids=["cold", "hot", "half"])
def test_the_split_sums_to_the_step(tmp_path: Path, mask: Callable[[], np.ndarray], deferred: int) -> None:
    model, cost = tiny_model(tmp_path), tiny_cost()
    rates = replace(cost.rates, transfer_call_us=7.0, transfer_token_us=0.5)
    cost = replace(cost, rates=rates, behaviour=RuntimeBehaviour(deferred_experts=deferred))
    replays = Replays(one_expert_trace(), 0, "trace")
    steps = replays.sample(StepKind.DECODE, 6, 5, deferred_experts=deferred)
    costs = step_costs(model, cost, steps, SETTINGS, WORKLOAD, 1)
    held = 6 * WORKLOAD.mean_context_tokens
    parts = step_parts(model, costs, mask(), batch=6, context_tokens=WORKLOAD.mean_context_tokens)
    split = parts.split(held)
    whole = costs.base_us + parts.layers_us().sum(axis=1).mean()
    assert split.step_ms == pytest.approx(whole / 1e3, rel=1e-12)
    assert min(*split.hot_ms, *split.cold_wait_ms, *split.transfer_ms) >= 0
    if not deferred:
        assert whole == pytest.approx(costs.step_us(mask()).mean(), rel=1e-9)


def test_where_a_cold_layers_time_goes(tmp_path: Path) -> None:
    cost = tiny_cost()
    cost = replace(cost, rates=replace(cost.rates, transfer_call_us=7.0, transfer_token_us=0.5))
    hot = COLD.copy()
    hot[:, 0] = True
    steps = Replays(one_expert_trace(), 0, "trace").sample(StepKind.DECODE, 6, 1)
    costs = step_costs(tiny_model(tmp_path), cost, steps, SETTINGS, WORKLOAD, 1)
    split = step_parts(tiny_model(tmp_path), costs, hot, batch=6, context_tokens=20).split(120)
    # The GPU takes 5 + 2 + 6 = 13; the CPU 20 + 100 + 60 = 180 and copies of 7 + 6 * 0.5 = 10.
    assert split.hot_ms == pytest.approx([0.013] * 4)
    assert split.cold_ms == pytest.approx([0.180] * 4)
    assert split.transfer_ms == pytest.approx([0.010] * 4)
    assert split.cold_wait_ms == pytest.approx([0.190 - 0.013 - 0.010] * 4)


def test_a_thousand_sizes_are_asked_for_quickly(tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_running_requests=1024, kv_tokens=40_960, chunk_tokens=1024)
    steps = level_steps(tmp_path, settings=settings)
    times = steps.step_times("cold", seed=0)
    for requests in range(1, 1025, 7):
        times.decode_us(requests, 0, 1)
    # Powers of two alone were replayed.
    assert len(steps._parts) <= 11


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_two_thousand_requests_of_varying_lengths_take_seconds(tmp_path: Path, scheduler: Scheduler) -> None:
    settings = replace(SETTINGS, max_running_requests=64, kv_tokens=64 * 4096, chunk_tokens=2048)
    times = level_steps(tmp_path, settings=settings).step_times("cold", seed=0)
    traffic = closed_loop(64, *spread_lengths(2000, 512, 128, variation=0.5, seed=0))
    started = time.process_time()
    served = simulate(traffic, Server(scheduler, 64, 64 * 4096, 2048), times)
    spent_s = time.process_time() - started
    assert spent_s < 5
    assert served.decode_steps + served.prefill_steps > 3000
