"""A benchmark's requests played in a closed loop: worked examples, and what holds for any requests."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.profiler.request_play import RequestPlay, play_requests
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.simulation import simulate
from placer.profiler.serving.step_time import ConstantStepTimes
from placer.profiler.serving.traffic import closed_loop


def play(
    inputs: tuple[int, ...], outputs: tuple[int, ...], clients: int, running: int, chunk: int
) -> RequestPlay:
    server = Server(Scheduler.SGLANG, max_running=running, kv_tokens=100_000, chunk_tokens=chunk)
    return play_requests(closed_loop(clients, np.array(inputs), np.array(outputs)), server)


def entries(found: RequestPlay) -> list[tuple[str, int, int]]:
    kinds = ["prefill" if each else "decode" for each in found.prefill]
    return list(zip(kinds, found.size.tolist(), found.count.tolist(), strict=True))


def test_two_prompts_share_a_chunk() -> None:
    found = play((4, 4), (3, 3), clients=2, running=2, chunk=8)
    assert entries(found) == [("prefill", 8, 1), ("decode", 2, 2)]
    # A chunk takes 10 ms per token, a decode step 5 ms per request.
    figures = found.figures(lambda size: size * 5e3, lambda size: size * 10e3)
    assert figures.mean_ttft_ms == pytest.approx(80)
    assert figures.mean_tpot_ms == pytest.approx(10)
    # Six tokens in 80 + 2 × 10 ms.
    assert figures.output_tokens_per_s == pytest.approx(60)


def test_a_prompt_is_cut_where_the_chunk_is_full_and_decoding_waits() -> None:
    found = play((4, 4), (3, 3), clients=2, running=2, chunk=6)
    assert entries(found) == [("prefill", 6, 1), ("prefill", 2, 1), ("decode", 2, 2)]
    figures = found.figures(lambda size: size * 5e3, lambda size: size * 10e3)
    # First tokens after 60 and 80 ms; the first request stands still for 20 ms of its (20 + 20) / 2.
    assert figures.mean_ttft_ms == pytest.approx(70)
    assert figures.mean_tpot_ms == pytest.approx((20 + 10) / 2)


def test_a_client_sends_its_next_request_when_the_last_one_ends() -> None:
    found = play((4, 4), (2, 3), clients=1, running=8, chunk=8)
    assert entries(found) == [("prefill", 4, 1), ("decode", 1, 1), ("prefill", 4, 1), ("decode", 1, 2)]
    assert found.sent.tolist() == [0, 2]
    assert found.figures(lambda s: s * 5e3, lambda s: s * 10e3).mean_ttft_ms == pytest.approx(40)


def test_clients_beyond_the_slots_wait() -> None:
    found = play((4, 4), (3, 3), clients=2, running=1, chunk=8)
    assert entries(found) == [("prefill", 4, 1), ("decode", 1, 2), ("prefill", 4, 1), ("decode", 1, 2)]
    # The second waits for the first: 40 + 10 + 40 ms.
    assert found.figures(lambda s: s * 5e3, lambda s: s * 10e3).mean_ttft_ms == pytest.approx((40 + 90) / 2)


def test_a_request_of_one_token_ends_with_its_prompt() -> None:
    found = play((4, 4), (1, 2), clients=1, running=1, chunk=8)
    assert entries(found) == [("prefill", 4, 1), ("prefill", 4, 1), ("decode", 1, 1)]
    # It has no TPOT.
    assert found.figures(lambda s: s * 5e3, lambda s: s * 10e3).mean_tpot_ms == pytest.approx(5)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=20),
    st.integers(1, 8),
    st.integers(1, 6),
    st.integers(6, 32),
)
def test_every_token_is_computed_once(
    requests: list[tuple[int, int]], clients: int, running: int, chunk: int
) -> None:
    inputs, outputs = tuple(each[0] for each in requests), tuple(each[1] for each in requests)
    found = play(inputs, outputs, clients, running, chunk)
    assert found.size[found.prefill].sum() == sum(inputs)
    assert (found.size * found.count)[~found.prefill].sum() == sum(outputs) - len(outputs)
    assert found.size[~found.prefill].max(initial=0) <= min(clients, running)
    assert found.size[found.prefill].max() <= chunk
    assert np.all(found.sent < found.first)
    assert np.all(found.first <= found.end)


def test_figures_are_those_of_the_simulation_under_its_step_times() -> None:
    random = np.random.default_rng(0)
    inputs, outputs = random.integers(1, 60, 40), random.integers(1, 30, 40)
    server = Server(Scheduler.SGLANG, max_running=4, kv_tokens=300, chunk_tokens=32)
    traffic = closed_loop(6, inputs, outputs)
    served = simulate(traffic, server, ConstantStepTimes(decode_step_us=7e3, prefill_step_us=20e3))
    tpot = served.tpot_ms()
    figures = play_requests(traffic, server).figures(
        lambda size: np.full(size.shape, 7e3), lambda size: np.full(size.shape, 20e3)
    )
    assert tpot is not None
    assert figures.mean_ttft_ms == pytest.approx(served.ttft_ms().mean)
    assert figures.mean_tpot_ms == pytest.approx(tpot.mean)
    assert figures.output_tokens_per_s == pytest.approx(served.output_tokens_per_s)
