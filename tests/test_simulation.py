"""Continuous batching on constant step times, where every figure can be worked out by hand."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.simulation import simulate
from placer.profiler.serving.step_time import ConstantStepTimes
from placer.profiler.serving.traffic import (
    Traffic,
    closed_loop,
    fixed_lengths,
    gamma_spaced,
    poisson,
    spread_lengths,
)

TIMES = ConstantStepTimes(decode_step_us=10_000, prefill_step_us=30_000)
BOTH = pytest.mark.parametrize("scheduler", list(Scheduler))


def server(scheduler: Scheduler = Scheduler.SGLANG, **limits: int) -> Server:
    return Server(
        scheduler, **{"max_running": 8, "kv_tokens": 100_000, "chunk_tokens": 512, "page_tokens": 1, **limits}
    )


@BOTH
def test_one_request_alone(scheduler: Scheduler) -> None:
    # 100 tokens: one from the prefill of 30 ms, 99 steps of 10 ms.
    served = simulate(closed_loop(1, *fixed_lengths(1, 512, 100)), server(scheduler), TIMES)
    assert served.ttft_ms().mean == pytest.approx(30)
    assert served.tpot_ms().mean == pytest.approx(10)
    assert served.duration_us == pytest.approx(30_000 + 99 * 10_000)
    assert served.output_tokens_per_s == pytest.approx(100 / 1.02)
    assert (served.decode_steps, served.prefill_steps, served.prefilled_tokens) == (99, 1, 512)
    # The last token is never written to the pool.
    assert served.peak_kv_tokens == 512 + 99


@BOTH
def test_what_a_client_takes_before_the_scheduler_knows_counts_to_its_ttft(scheduler: Scheduler) -> None:
    # Two requests of one client: 5 ms on the way, 30 ms of prefill, 9 steps of 10 ms, each.
    traffic = replace(closed_loop(1, *fixed_lengths(2, 512, 10)), client_us=5_000)
    served = simulate(traffic, server(scheduler), TIMES)
    assert served.ttft_ms().mean == pytest.approx(35)
    assert served.tpot_ms().mean == pytest.approx(10)
    assert served.duration_us == pytest.approx(2 * (5_000 + 30_000 + 9 * 10_000))


@BOTH
def test_the_other_client_decodes_meanwhile(scheduler: Scheduler) -> None:
    # Both are known of after 5 ms and share the prefill; the first ends at 45 ms, and its next one, sent then, is
    # known of at 50, in the middle of a step that ends at 55.
    traffic = replace(closed_loop(2, np.array([8, 8, 8]), np.array([2, 20, 2])), client_us=5_000)
    served = simulate(traffic, server(scheduler), TIMES)
    assert served.arrival_us.tolist() == [0, 0, 45_000]
    assert served.admitted_us.tolist() == [5_000, 5_000, 55_000]


@BOTH
@pytest.mark.parametrize(("prompt", "chunks"), [(1, 1), (511, 1), (512, 1), (513, 2), (1024, 2), (1025, 3)])
def test_a_prompt_takes_a_step_per_chunk(scheduler: Scheduler, prompt: int, chunks: int) -> None:
    served = simulate(closed_loop(1, *fixed_lengths(1, prompt, 2)), server(scheduler), TIMES)
    assert served.ttft_ms().mean == pytest.approx(30 * chunks)


@BOTH
def test_kv_for_two_of_three_clients(scheduler: Scheduler) -> None:
    # 90 tokens of KV each and room for 200: two run, the third starts when they end.
    traffic = closed_loop(3, *fixed_lengths(3, 80, 10))
    served = simulate(traffic, server(scheduler, kv_tokens=200), TIMES)
    # One prefill step holds both prompts; 9 decode steps follow; then the third has the server alone.
    assert served.finish_us.tolist() == pytest.approx([120_000, 120_000, 240_000])
    assert served.queue_ms().p50 == 0
    assert served.admitted_us[2] == pytest.approx(120_000)
    assert served.peak_kv_tokens == 2 * 89
    assert served.retractions.sum() == 0


def test_sglang_stops_decoding_for_a_prompt_and_vllm_does_both_at_once() -> None:
    # The second request arrives at 60 ms, while the first decodes (steps end at 40, 50, 60 ms ...).
    traffic = Traffic(np.array([512, 512]), np.array([11, 11]), np.array([0.0, 55_000.0]), 0)
    sglang = simulate(traffic, server(), TIMES)
    # Steps end at 40, 50, 60 | prefill to 90 | 7 more steps of the first.
    assert sglang.first_token_us[1] == pytest.approx(90_000)
    assert sglang.finish_us[0] == pytest.approx(90_000 + 7 * 10_000)
    # vLLM's budget of 512 leaves 511 for the prompt beside the decode token: two mixed steps of 40 ms.
    vllm = simulate(traffic, server(Scheduler.VLLM), TIMES)
    assert vllm.first_token_us[1] == pytest.approx(60_000 + 2 * 40_000)
    assert vllm.finish_us[0] == pytest.approx(140_000 + 5 * 10_000)


def test_prompts_share_a_prefill_step() -> None:
    # Four prompts of 128 tokens fill one chunk of 512; a fifth waits for the next step.
    served = simulate(closed_loop(5, *fixed_lengths(5, 128, 2)), server(), TIMES)
    assert (served.first_token_us / 1e3).tolist() == pytest.approx([30, 30, 30, 30, 60])


@pytest.mark.parametrize(("page", "third_ms"), [(1, 30), (16, 60)])
def test_prompts_take_whole_pages_of_a_chunk(page: int, third_ms: float) -> None:
    # Three prompts of 20 tokens fill 60 of a chunk of 64; in pages of 16 each takes 32, and two fill it.
    served = simulate(
        closed_loop(3, *fixed_lengths(3, 20, 2)), server(chunk_tokens=64, page_tokens=page), TIMES
    )
    assert (served.first_token_us / 1e3).tolist() == pytest.approx([30, 30, third_ms])


def test_a_prompt_is_cut_where_the_chunk_ends() -> None:
    # 300 + 212 of the second in the first step, its last 88 in the second.
    served = simulate(closed_loop(2, *fixed_lengths(2, 300, 2)), server(), TIMES)
    assert (served.first_token_us / 1e3).tolist() == pytest.approx([30, 60])


def test_slots_bound_what_runs() -> None:
    # One slot for three clients: each waits for those before it.
    served = simulate(closed_loop(3, *fixed_lengths(3, 8, 100)), server(max_running=1), TIMES)
    whole = 30 + 99 * 10
    assert (served.admitted_us / 1e3).tolist() == pytest.approx([0, whole, 2 * whole])
    assert served.queue_ms().mean == pytest.approx(whole)


def test_sglang_retracts_when_its_guess_of_the_output_was_too_low() -> None:
    # SGLang starts the second request although both will not fit to their ends: it counts 70 % of the first's output.
    traffic = Traffic(np.array([100, 100]), np.array([200, 190]), np.array([0.0, 35_000.0]), 0)
    served = simulate(traffic, server(kv_tokens=535), TIMES)
    # It starts with 102 + 100 tokens held and 0.7 * 198 + 190 to come, and both need 292 + 290 at its end: the one
    # with less output goes back to the queue.
    assert served.retractions.tolist() == [0, 1]
    assert served.prefilled_tokens > 200
    assert served.peak_kv_tokens <= 535
    assert served.finish_us[1] > served.finish_us[0]


def test_vllm_preempts_the_newest_and_starts_it_again_first() -> None:
    traffic = closed_loop(3, *fixed_lengths(3, 60, 60))
    served = simulate(traffic, server(Scheduler.VLLM, kv_tokens=256, page_tokens=16), TIMES)
    assert served.retractions[0] == 0
    assert served.retractions.sum() >= 1
    assert served.peak_kv_tokens <= 256


@BOTH
def test_a_request_that_never_fits_is_refused(scheduler: Scheduler) -> None:
    traffic = closed_loop(1, *fixed_lengths(1, 90, 20))
    with pytest.raises(BadInputError, match="never fits"):
        simulate(traffic, server(scheduler, kv_tokens=100), TIMES)


def test_an_open_loop_below_capacity_serves_what_arrives() -> None:
    # A request takes 30 + 9 * 10 = 120 ms alone; at 2 per second the server mostly waits.
    traffic = poisson(2.0, *fixed_lengths(400, 64, 10), seed=0)
    served = simulate(traffic, server(), TIMES)
    assert served.requests_per_s == pytest.approx(2.0, rel=0.15)
    assert served.ttft_ms().p50 == pytest.approx(30, abs=10.1)


@settings(max_examples=60, deadline=None)
@given(
    scheduler=st.sampled_from(list(Scheduler)),
    clients=st.integers(0, 12),
    requests=st.integers(1, 30),
    kv_tokens=st.integers(220, 1500),
    running=st.integers(1, 10),
    chunk=st.integers(16, 300),
    page=st.sampled_from([1, 16]),
    seed=st.integers(0, 1000),
)
def test_tokens_are_conserved_and_the_pool_is_never_overdrawn(
    scheduler: Scheduler,
    clients: int,
    requests: int,
    kv_tokens: int,
    running: int,
    chunk: int,
    page: int,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 100, size=requests), random.integers(1, 90, size=requests)
    traffic = closed_loop(clients, *lengths) if clients else poisson(5.0, *lengths, seed=seed)
    served = simulate(
        traffic,
        server(scheduler, kv_tokens=kv_tokens, max_running=running, chunk_tokens=chunk, page_tokens=page),
        TIMES,
    )
    assert np.isfinite(served.finish_us).all()
    assert (served.arrival_us <= served.admitted_us).all()
    assert (served.admitted_us < served.first_token_us).all()
    assert (served.first_token_us <= served.finish_us).all()
    assert served.peak_kv_tokens <= kv_tokens
    assert served.mean_kv_tokens <= served.peak_kv_tokens
    assert served.prefilled_tokens >= served.prompt_tokens.sum()
    if not served.retractions.any():
        assert served.prefilled_tokens == served.prompt_tokens.sum()
    # The server is busy or empty: no time is lost or counted twice.
    assert served.decode_us + served.prefill_us <= served.duration_us * (1 + 1e-9)
    if clients:
        assert served.decode_us + served.prefill_us == pytest.approx(served.duration_us)


def test_two_thousand_requests_take_seconds() -> None:
    traffic = closed_loop(64, *spread_lengths(2000, 512, 128, variation=0.5, seed=0))
    started = time.process_time()
    served = simulate(traffic, server(max_running=64, kv_tokens=64 * 4096), TIMES)
    assert time.process_time() - started < 5
    assert served.decode_steps > 3000


def test_bursts_have_the_rate_and_the_spread_of_their_distances() -> None:
    lengths = fixed_lengths(4, 64, 10)
    even = gamma_spaced(2.0, float("inf"), *lengths, seed=0)
    assert even.arrival_us is not None
    assert even.arrival_us.tolist() == [0.5e6, 1.0e6, 1.5e6, 2.0e6]
    for burstiness in (0.25, 4.0):
        arrival_us = gamma_spaced(2.0, burstiness, *fixed_lengths(10_000, 64, 10), seed=0).arrival_us
        assert arrival_us is not None
        assert arrival_us[-1] == pytest.approx(5000e6)
        # A gamma distribution of shape k deviates from its mean by 1 / sqrt(k) of it.
        distances = np.diff(arrival_us)
        assert distances.std() / distances.mean() == pytest.approx(burstiness**-0.5, rel=0.05)
    huge = gamma_spaced(2.0, 1e308, *lengths, seed=0).arrival_us
    assert huge is not None
    assert huge.tolist() == even.arrival_us.tolist()
    at_once = gamma_spaced(2.0, 1e-300, *lengths, seed=0).arrival_us
    assert at_once is not None
    assert np.isfinite(at_once).all()
