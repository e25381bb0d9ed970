"""Closed-loop serving on constant step times, where every figure can be worked out by hand."""

import numpy as np
import pytest

from placer.profiler.serving.closed_loop import simulate_closed_loop


def test_one_client_alone() -> None:
    # 100 tokens: one from prefill (30 ms), 99 steps of 10 ms. No queue, no stall.
    result = simulate_closed_loop(
        clients=1,
        max_running=1,
        prompt_tokens=512,
        output_tokens=100,
        chunk_tokens=512,
        decode_step_us=np.array([10_000.0]),
        prefill_chunk_us=np.array([30_000.0]),
        seed=0,
    )
    assert result.ttft_ms_mean == pytest.approx(30)
    assert result.tpot_ms_mean == pytest.approx(10)
    assert result.output_tokens_per_s == pytest.approx(100 / (0.030 + 99 * 0.010), rel=1e-3)


def test_a_prompt_of_three_chunks_takes_three_prefills() -> None:
    result = simulate_closed_loop(
        clients=1,
        max_running=1,
        prompt_tokens=1100,
        output_tokens=10,
        chunk_tokens=512,
        decode_step_us=np.array([1_000.0]),
        prefill_chunk_us=np.array([30_000.0]),
        seed=0,
    )
    assert result.ttft_ms_p95 == pytest.approx(90)


def test_other_requests_prefills_stall_decoding() -> None:
    # Two requests in turn: each sees one prefill of the other per request of its own.
    result = simulate_closed_loop(
        clients=2,
        max_running=2,
        prompt_tokens=512,
        output_tokens=101,
        chunk_tokens=512,
        decode_step_us=np.array([10_000.0]),
        prefill_chunk_us=np.array([100_000.0]),
        seed=1,
    )
    assert result.tpot_ms_mean == pytest.approx(10 + 100 / 100, rel=0.02)


def test_clients_beyond_the_slots_queue() -> None:
    # One slot for three clients: a request waits for two whole requests of 1 s each before its prefill.
    result = simulate_closed_loop(
        clients=3,
        max_running=1,
        prompt_tokens=8,
        output_tokens=100,
        chunk_tokens=8,
        decode_step_us=np.array([10_000.0]),
        prefill_chunk_us=np.array([10_000.0]),
        seed=0,
    )
    assert result.ttft_ms_mean == pytest.approx(2000 + 10, rel=1e-3)
    assert result.tpot_ms_p95 == pytest.approx(10)


def test_the_same_seed_gives_the_same_answer() -> None:
    steps = np.random.default_rng(3).uniform(5_000, 15_000, 64)
    runs = [
        simulate_closed_loop(
            clients=8,
            max_running=4,
            prompt_tokens=64,
            output_tokens=32,
            chunk_tokens=64,
            decode_step_us=steps,
            prefill_chunk_us=steps,
            seed=7,
        )
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
