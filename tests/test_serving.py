"""What clients see, on constant step times: prefill steps of 30 ms, decode steps of 10 ms."""

import math
from dataclasses import replace

import numpy as np
import pytest

from placer.errors import BadInputError
from placer.hbm import ServerSettings
from placer.prediction import level_server
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.simulation import simulate
from placer.profiler.serving.step_time import ConstantStepTimes
from placer.profiler.serving.traffic import Traffic, spread_lengths
from placer.serving import ServingFigures, serving_figures
from placer.workload import Workload

TIMES = ConstantStepTimes(decode_step_us=10_000, prefill_step_us=30_000)
BOTH = pytest.mark.parametrize("scheduler", list(Scheduler))
ONE = Workload(prompt_tokens=64, output_tokens=10, concurrency=1)
"""A request of it takes 30 + 9 * 10 = 120 ms alone."""


def server(scheduler: Scheduler = Scheduler.SGLANG, running: int = 1) -> Server:
    return Server(scheduler, max_running=running, kv_tokens=10_000, chunk_tokens=512)


@BOTH
def test_one_client(scheduler: Scheduler) -> None:
    figures = serving_figures(TIMES, server(scheduler), ONE, seed=0)
    assert figures.ttft_ms.p99 == pytest.approx(30)
    assert figures.tpot_ms.p99 == pytest.approx(10)
    assert figures.queue_ms.p99 == 0
    assert figures.requests_per_s == pytest.approx(1 / 0.120)
    assert figures.output_tokens_per_s == pytest.approx(10 / 0.120)
    assert figures.kv_peak_tokens == 64 + 9
    assert figures.retractions == 0
    assert figures.goodput_tokens_per_s is None
    assert figures.capacity_per_s is None


@BOTH
def test_clients_beyond_the_slots_queue(scheduler: Scheduler) -> None:
    figures = serving_figures(TIMES, server(scheduler), replace(ONE, concurrency=3), seed=0)
    assert figures.requests_per_s == pytest.approx(1 / 0.120)
    # Each waits for the two before it.
    assert figures.queue_ms.p50 == pytest.approx(240)
    assert figures.ttft_ms.p50 == pytest.approx(270)


def test_what_waits_is_counted_once_the_queue_is_full() -> None:
    # Each of 16 clients waits for the 15 before it, also the first that is counted; the KV is of one request, which
    # holds 64 to 73 tokens.
    figures = serving_figures(TIMES, server(), replace(ONE, concurrency=16), seed=0)
    assert figures.queue_ms.mean == pytest.approx(15 * 120)
    assert figures.kv_mean_tokens == pytest.approx((30 * 64 + 10 * sum(range(65, 74))) / 120)


@BOTH
@pytest.mark.parametrize(("running", "clients"), [(4, 4), (4, 6), (4, 9), (16, 17), (3, 16)])
def test_every_client_is_somewhere_and_every_token_of_a_request(
    scheduler: Scheduler, running: int, clients: int
) -> None:
    # Little's law: what waits and what runs are the clients, all of them.
    figures = serving_figures(TIMES, server(scheduler, running), Workload(64, 20, clients), seed=0)
    each_s = (figures.ttft_ms.mean + 19 * figures.tpot_ms.mean) / 1e3
    assert figures.requests_per_s * each_s == pytest.approx(clients)
    assert figures.output_tokens_per_s == pytest.approx(20 * figures.requests_per_s)


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_a_pool_too_small_for_all_that_run_is_played_until_its_rates_agree(
    scheduler: Scheduler, seed: int
) -> None:
    # 16 requests of 150 tokens in a pool of 1,000: some lose their KV.
    tight = replace(server(scheduler, 16), kv_tokens=1_000)
    figures = serving_figures(TIMES, tight, Workload(50, 100, 16), seed)
    assert figures.retractions > 0
    assert figures.output_tokens_per_s == pytest.approx(100 * figures.requests_per_s, rel=0.04)


def test_clients_of_equal_requests_that_start_together_are_one_case_of_several() -> None:
    # Whose prompts come at one moment wait for each other, 30 ms and 60 ms, and again in every round.
    found = [
        serving_figures(TIMES, server(running=4), Workload(64, 100, 4), seed).ttft_ms.mean
        for seed in range(8)
    ]
    assert min(found) >= 30
    assert max(found) < 31


@BOTH
def test_figures_are_those_of_a_longer_run(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload(64, 40, 6, length_variation=0.5)
    short = serving_figures(TIMES, server(scheduler, 2), workload, seed=0)
    monkeypatch.setattr("placer.serving._LEAST_VARIED", 3_000)
    long = serving_figures(TIMES, server(scheduler, 2), workload, seed=1)
    assert short.output_tokens_per_s == pytest.approx(long.output_tokens_per_s, rel=0.015)
    assert short.ttft_ms.mean == pytest.approx(long.ttft_ms.mean, rel=0.03)
    assert short.kv_mean_tokens == pytest.approx(long.kv_mean_tokens, rel=0.04)


@pytest.mark.parametrize("running", [1, 8, 64])
def test_tokens_per_second_hardly_depend_on_which_lengths_were_drawn(running: int) -> None:
    workload = Workload(64, 200, running, length_variation=1.0)
    roomy = replace(server(running=running), kv_tokens=100_000)
    alike = ConstantStepTimes(decode_step_us=10_000, prefill_step_us=10_000)
    rates = [serving_figures(alike, roomy, workload, seed=seed).output_tokens_per_s for seed in range(4)]
    assert max(rates) < 1.015 * min(rates)


@pytest.mark.parametrize(
    ("ttft_ms", "tpot_ms", "kept"),
    [(31.0, None, 1.0), (None, 9.0, 0.0), (29.0, 11.0, 0.0), (31.0, 11.0, 1.0)],
)
def test_goodput_is_of_requests_that_keep_both_targets(
    ttft_ms: float | None, tpot_ms: float | None, kept: float
) -> None:
    workload = replace(ONE, slo_ttft_ms=ttft_ms, slo_tpot_ms=tpot_ms)
    figures = serving_figures(TIMES, server(), workload, seed=0)
    assert figures.goodput_tokens_per_s == pytest.approx(kept * 10 / 0.120)


def test_requests_that_never_meet_are_each_served_alone() -> None:
    # One in a thousand seconds on average: hardly any two within 120 ms.
    figures = serving_figures(TIMES, server(), replace(ONE, rate_per_s=1e-3), seed=0)
    assert (figures.ttft_ms.p50, figures.ttft_ms.p99) == pytest.approx((30, 30))
    assert figures.requests_per_s == 1e-3
    assert figures.output_tokens_per_s == pytest.approx(1e-2)
    assert figures.capacity_per_s == pytest.approx(1 / 0.120)
    assert not figures.falls_behind


def test_waiting_grows_with_the_load_as_queueing_theory_says() -> None:
    # One slot and equal requests are an M/D/1 queue: at half the capacity the mean wait is half a service time.
    figures = serving_figures(TIMES, server(), replace(ONE, rate_per_s=0.5 / 0.120, concurrency=1), seed=0)
    assert figures.queue_ms.mean == pytest.approx(60, rel=0.35)


def test_a_server_that_falls_behind_has_no_waiting_time() -> None:
    workload = replace(ONE, rate_per_s=10.0, slo_ttft_ms=1e6)
    figures = serving_figures(TIMES, server(), workload, seed=0)
    assert figures.falls_behind
    assert figures.capacity_per_s == pytest.approx(1 / 0.120)
    assert figures.requests_per_s == pytest.approx(1 / 0.120)
    assert math.isinf(figures.ttft_ms.p50)
    assert math.isinf(figures.queue_ms.mean)
    assert figures.tpot_ms.p95 == pytest.approx(10)
    assert figures.goodput_tokens_per_s == 0


@pytest.mark.parametrize(("share", "behind"), [(0.9, False), (0.96, False), (0.975, True), (1.5, True)])
def test_a_server_falls_behind_where_its_queue_never_settles(share: float, behind: bool) -> None:
    workload = replace(ONE, rate_per_s=share / 0.120)
    figures = serving_figures(TIMES, server(), workload, seed=0)
    assert figures.falls_behind is behind
    assert math.isinf(figures.queue_ms.mean) is behind
    assert figures.requests_per_s == pytest.approx(min(share, 1.0) / 0.120)


def test_a_server_gives_out_the_pages_of_its_runtime() -> None:
    settings = ServerSettings(1, 1024, 64, "bf16")
    assert level_server(settings, ONE).page_tokens == 1
    assert level_server(settings, ONE, sglang_page_tokens=64).page_tokens == 64
    assert level_server(settings, ONE, Scheduler.VLLM, sglang_page_tokens=64).page_tokens == 16


def test_given_arrivals_are_all_counted() -> None:
    # The second waits 120 - 50 ms, the third finds an empty server.
    workload = replace(ONE, arrivals_s=(0.0, 0.05, 5.0))
    figures = serving_figures(TIMES, server(), workload, seed=0)
    assert figures.queue_ms.mean == pytest.approx(70 / 3)
    assert figures.requests_per_s == pytest.approx(3 / 5.12)
    assert not figures.falls_behind


def test_given_arrivals_may_have_lengths_of_their_own() -> None:
    workload = replace(ONE, arrivals_s=(0.0, 5.0), request_lengths=((64, 10), (1024, 3)))
    figures = serving_figures(TIMES, server(), workload, seed=0)
    # The second prompt takes two chunks of 512.
    assert figures.ttft_ms.mean == pytest.approx((30 + 60) / 2)
    assert figures.kv_peak_tokens == 1024 + 2
    assert workload.longest_request_tokens == 1027


@BOTH
@pytest.mark.parametrize(
    ("found", "chunks"),
    [(0, 2), (511, 2), (512, 1), (1023, 1)],
    ids=["none", "half", "a chunk", "all but one"],
)
def test_what_the_prefix_cache_holds_is_not_computed_but_takes_kv(
    scheduler: Scheduler, found: int, chunks: int
) -> None:
    traffic = Traffic(np.array([1024]), np.array([2]), None, 1, cached_tokens=np.array([found]))
    served = simulate(traffic, server(scheduler), TIMES)
    assert served.ttft_ms().mean == pytest.approx(30 * chunks)
    assert served.prefilled_tokens == 1024 - found
    assert served.peak_kv_tokens == 1025


@pytest.mark.parametrize(("share", "computed"), [(0.0, 1000), (0.5, 500), (0.999, 1), (0.9999, 1)])
def test_the_last_prompt_token_is_always_computed(share: float, computed: int) -> None:
    assert Workload(1000, 10, 1, prefix_hit=share).computed_prompt_tokens == computed


def test_prefix_hits_of_a_workload() -> None:
    # 600 of 1,200 tokens are left: two chunks in place of three.
    workload = Workload(1200, 10, 1, prefix_hit=0.5)
    assert serving_figures(TIMES, server(), workload, seed=0).ttft_ms.p50 == pytest.approx(60)


@BOTH
def test_a_retracted_request_computes_its_cached_prompt_again(scheduler: Scheduler) -> None:
    lengths = np.full(3, 60), np.full(3, 60)
    tight = Server(scheduler, max_running=8, kv_tokens=256, chunk_tokens=512, page_tokens=16)
    cached = Traffic(*lengths, None, 3, cached_tokens=np.full(3, 50))
    served = simulate(cached, tight, TIMES)
    again = int(served.prompt_tokens[served.retractions > 0].sum())
    assert served.prefilled_tokens >= 3 * 10 + again
    assert served.peak_kv_tokens <= 256


def test_lengths_keep_their_mean_and_are_cut_where_the_workload_says() -> None:
    workload = Workload(500, 100, 4, length_variation=1.0)
    prompts, outputs = spread_lengths(20_000, 500, 100, variation=1.0, seed=0, longest=workload.longest)
    assert prompts.mean() == pytest.approx(500, rel=0.005)
    assert outputs.std() / outputs.mean() == pytest.approx(1.0, rel=0.1)
    assert int(prompts.max()) + int(outputs.max()) == workload.longest_request_tokens
    assert Workload(500, 100, 4).longest_request_tokens == 600


def test_every_part_of_the_requests_has_the_lengths_of_all() -> None:
    prompts, outputs = spread_lengths(512, 500, 100, variation=1.0, seed=0, blocks=8)
    for lengths, mean in ((prompts, 500), (outputs, 100)):
        parts = lengths.reshape(8, 64)
        # Log-normal, mean 1 and deviation 1: half of the lengths lie below exp(-ln(2) / 2).
        assert np.median(parts, axis=1) == pytest.approx(mean / math.sqrt(2), rel=0.06)
        assert lengths.mean() == pytest.approx(mean, rel=0.005)
        assert (np.sort(parts, axis=1) != parts).any(axis=1).all()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rate_per_s": 0.0}, "--rate is 0"),
        ({"rate_per_s": math.nan}, "--rate is nan"),
        ({"rate_per_s": 1.0, "arrivals_s": (0.0,)}, "exclude each other"),
        ({"arrivals_s": ()}, "holds 0 requests"),
        ({"arrivals_s": (1.0, 0.0)}, "do not ascend"),
        ({"arrivals_s": (0.0, math.inf)}, "do not ascend"),
        ({"length_variation": -0.1}, "--length-variation is -0.1"),
        ({"length_variation": math.nan}, "--length-variation is nan"),
        ({"prefix_hit": 1.0}, "--prefix-hit is 1"),
        ({"prefix_hit": math.nan}, "--prefix-hit is nan"),
    ],
)
def test_traffic_that_cannot_be_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        replace(ONE, **fields)


def test_given_times_count_from_the_first() -> None:
    def figures(first_s: float) -> ServingFigures:
        times = tuple(first_s + 0.125 * n for n in range(20))
        return serving_figures(TIMES, server(), replace(ONE, arrivals_s=times), seed=0)

    assert figures(0.0) == figures(1764500000.0)


def test_given_times_within_a_microsecond_are_one_moment() -> None:
    assert replace(ONE, arrivals_s=(0.0, 1e-320)).arrival_rate_per_s is None
    assert replace(ONE, arrivals_s=(0.0, 0.5, 1.0)).arrival_rate_per_s == 2.0


@pytest.mark.parametrize("rate", [0.0, 1e-300, 1e-7, 1e7, float("nan")])
def test_a_rate_that_no_clock_takes_is_refused(rate: float) -> None:
    with pytest.raises(BadInputError, match=r"give requests per second above 0: 0\.000001 to 1000000"):
        replace(ONE, rate_per_s=rate)


@BOTH
def test_rare_requests_are_served_alone(scheduler: Scheduler) -> None:
    assert serving_figures(TIMES, server(scheduler), replace(ONE, rate_per_s=1e-6), seed=0).ttft_ms.p95 == (
        pytest.approx(30)
    )


def test_given_times_of_more_than_a_week_are_refused() -> None:
    with pytest.raises(BadInputError, match="span 604,801 s"):
        replace(ONE, arrivals_s=(0.0, 604_801.0))
