"""Real campaigns on small experts: the worker process, its files, its failures and the profile at the end."""

import importlib.util
import json
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import psutil
import pytest
import torch

from placer.errors import BadInputError, MissingComponentError
from placer.kernels.cores import usable_cores
from placer.kernels.cpu_needs import cpu_flags
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.timing.call import Call, Role
from placer.profiler.timing.campaign import Progress, time_campaign
from placer.profiler.timing.cpu_profile import profile_cpu
from placer.profiler.timing.gpu_profile import profile_gpu
from placer.profiler.timing.kernel_profile import kernel_profile
from placer.profiler.timing.machine import this_machine
from placer.profiler.timing.machine_speed import read_bandwidth_bytes_per_s
from placer.profiler.timing.rounds import LEAST_ROUNDS, Tally, calls_in_all, run_rounds
from placer.profiler.timing.samples import Samples
from placer.profiler.timing.spec import CampaignSpec

SHAPE = ExpertShape(hidden_size=64, expert_intermediate_size=32, experts=8, top_k=2)
SPEC = CampaignSpec(
    device="cpu",
    backend="torch",
    threads=1,
    subpools=1,
    shape=SHAPE,
    seed=0,
    max_seconds=15.0,
    rounds=9,
    extra_calls=(Call((3, 2, 1), 5, Role.HELDOUT, "trace"),),
    resident_bytes=1 << 20,
)


@pytest.fixture(scope="module")
def samples() -> Samples:
    return time_campaign(SPEC)


def test_every_call_is_timed_once_per_round(samples: Samples) -> None:
    assert samples.times_us.shape[0] >= 9
    assert samples.times_us.shape[1] == len(samples.calls)
    assert np.all(samples.times_us > 0)
    assert SPEC.extra_calls[0] in samples.calls
    assert {call.role for call in samples.calls} == {Role.GRID, Role.HELDOUT, Role.IDLE}


def test_more_rows_take_longer(samples: Samples) -> None:
    time_of = {t.call.rows: t.time_us for t in samples.timed()}
    assert time_of[(1,) * 8] > 2 * time_of[(1,)]
    assert time_of[(64,) * 4] > time_of[(1,) * 4]


def test_the_kernel_and_the_machine_are_named(samples: Samples) -> None:
    assert samples.kernel.version.startswith("torch ")
    assert samples.kernel.method == "torch"
    assert samples.border is None
    assert samples.machine.usable_cores >= 1
    assert samples.bandwidth[0].threads == 1
    assert samples.bandwidth[0].bytes_per_s > 1e8


def test_the_profile_is_plain_json(samples: Samples) -> None:
    profile = kernel_profile(SPEC, samples, reason="test")
    document = json.loads(json.dumps(asdict(profile), allow_nan=False))
    assert document["cost"]["provenance"] == "fitted"
    assert len(document["points"]) == len(samples.calls)
    assert document["shape"] == asdict(SHAPE)
    for point in document["points"]:
        assert point["p10_us"] <= point["p25_us"] <= point["p50_us"] <= point["p90_us"]
        assert point["predicted_us"] >= 0
    assert profile.achieved_share > 0
    assert profile.report.overall.calls > 0


def test_calls_can_be_timed_alone() -> None:
    calls = (Call((2, 1), 2, Role.HELDOUT, "trace"), Call((1,), 1, Role.HELDOUT, "trace"))
    spec = replace(SPEC, extra_calls=calls, only_extra=True)
    assert time_campaign(spec).calls == calls


def test_profile_cpu_goes_from_shapes_to_a_fit() -> None:
    seen: list[Progress] = []
    profile = profile_cpu(
        SHAPE, backend="torch", max_seconds=6.0, resident_bytes=1 << 20, progress=seen.append
    )
    assert profile.backend == "torch"
    assert profile.rounds >= LEAST_ROUNDS
    # 3 · 64 · 32 weights of half a byte, and four bytes per group of 32.
    assert profile.bytes_per_expert == 3072 + 768
    assert 0 < profile.output_error < 0.01
    assert "asked for" in profile.reason
    assert {"measuring memory bandwidth", "loading", "checking", "timing"} <= {
        progress.stage for progress in seen
    }


def test_a_group_that_does_not_divide_is_refused_before_anything_is_timed() -> None:
    with pytest.raises(MissingComponentError, match="not a multiple of 32"):
        profile_cpu(ExpertShape(64, 40, 8, 2), backend="torch")


def test_tp_must_divide_the_experts() -> None:
    with pytest.raises(BadInputError, match="does not divide by tp 3"):
        profile_gpu(SHAPE, tp=3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_its_profile_is_a_missing_component() -> None:
    with pytest.raises(MissingComponentError, match="no CUDA device"):
        profile_gpu(SHAPE, tp=1)


@pytest.mark.runtime
@pytest.mark.skipif(importlib.util.find_spec("kt_kernel") is None, reason="kt-kernel is not installed")
@pytest.mark.skipif(usable_cores() < 2, reason="kt-kernel needs two cores for one thread")
@pytest.mark.skipif("avx512f" not in cpu_flags(), reason="without AVX-512 both algorithms take about as long")
def test_kt_changes_its_algorithm_where_the_probe_finds_it() -> None:
    # 4·E/k = 16 tokens.
    shape = ExpertShape(hidden_size=1024, expert_intermediate_size=512, experts=16, top_k=4)
    # A busy neighbour can slow either side of the border; it does not do so three times in a row.
    for _ in range(3):
        profile = profile_cpu(shape, backend="kt", max_seconds=12.0, resident_bytes=1 << 25)
        assert profile.method == "RAWINT4"
        below, beyond = (
            regime.rows_us(np.array([8]))[0] for regime in (profile.cost.regimes[0], profile.cost.regimes[-1])
        )
        if beyond < below and profile.border_tokens == 16:
            break
    assert profile.border_tokens == 16
    assert [r.min_tokens for r in profile.cost.regimes] == [1, 17]
    # Eight rows above the border cost less than eight rows below it.
    assert beyond < below


def on_first_timing(act: Callable[[psutil.Process], None]) -> Callable[[Progress], None]:
    """Calls ``act`` on the worker when its first sample has been timed."""
    acted: list[bool] = []

    def progress(progress: Progress) -> None:
        if progress.stage == "timing" and not acted:
            acted.append(True)
            act(worker())

    return progress


def worker() -> psutil.Process:
    (found,) = [
        child
        for child in psutil.Process().children()
        if any("placer.profiler.timing.worker" in part for part in child.cmdline())
    ]
    return found


LONG = replace(SPEC, rounds=10_000, max_seconds=600.0)


def test_a_worker_that_crashes_is_reported_by_signal_and_stage() -> None:
    with pytest.raises(MissingComponentError) as caught:
        time_campaign(LONG, on_first_timing(lambda process: process.send_signal(signal.SIGSEGV)))
    assert "kernel torch" in caught.value.what
    assert "killed by SIGSEGV while timing" in caught.value.what
    assert caught.value.hint


def test_a_worker_that_hangs_is_reported_and_killed() -> None:
    stopped: list[psutil.Process] = []

    def stop(process: psutil.Process) -> None:
        stopped.append(process)
        process.suspend()

    with pytest.raises(
        MissingComponentError, match=r"kernel torch .* was stopped while timing.*busy or slow"
    ) as caught:
        time_campaign(LONG, on_first_timing(stop), stall_seconds=4.0)
    assert caught.value.hint.startswith("close other programs and try again")
    assert not stopped[0].is_running()


def test_an_interrupted_campaign_kills_its_worker() -> None:
    started: list[psutil.Process] = []

    def interrupt(process: psutil.Process) -> None:
        started.append(process)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        time_campaign(LONG, on_first_timing(interrupt))
    assert not started[0].is_running()


def test_an_error_of_the_worker_keeps_its_words() -> None:
    # A width that the group does not divide gets past the spec, and the kernel refuses it in the worker.
    with pytest.raises(MissingComponentError, match="expert width 40 is not a multiple") as caught:
        time_campaign(replace(SPEC, shape=ExpertShape(64, 40, 8, 2)))
    assert "sizes 32 divides" in caught.value.hint


class Clock:
    """A clock that only timing a call moves: a call takes 10 ms per row."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timed: list[Call] = []

    def time_us(self, call: Call) -> float:
        self.timed.append(call)
        self.now_s += 0.01 * sum(call.rows)
        return 1e4 * sum(call.rows)


def rounds_within(
    seconds: float, *, rounds: int = 20, essential: frozenset[int] = frozenset()
) -> tuple[Tally, Clock]:
    clock = Clock()
    calls = tuple(Call((m,), m, Role.GRID, "rows") for m in (1, 2, 3, 100))
    tally = run_rounds(
        calls,
        clock.time_us,
        deadline=seconds,
        rounds=rounds,
        min_rounds=9,
        essential=essential,
        generator=np.random.default_rng(0),
        on_round=lambda tally: None,
        on_progress=lambda done, total: None,
        now=lambda: clock.now_s,
    )
    return tally, clock


def test_the_share_that_is_told_follows_what_will_end_the_run() -> None:
    """20 rounds of 10 calls are planned, 9 are needed; 30 calls took a quarter of the time, so 120 will fit."""
    assert calls_in_all(30, planned=200, least=90, time_share=0.25) == 120
    assert calls_in_all(30, planned=200, least=90, time_share=0.05) == 200
    assert calls_in_all(30, planned=200, least=90, time_share=0.5) == 90
    # Late, and beyond what was needed.
    assert calls_in_all(95, planned=200, least=90, time_share=1.1) == 95
    assert calls_in_all(1, planned=200, least=90, time_share=0.0) == 200


def test_a_run_that_its_time_ends_is_told_to_go_by_its_time() -> None:
    """100 rounds are planned where 60 s hold few: half of the time is half of the work, and it ends at the end."""
    clock, told = Clock(), []
    run_rounds(
        (Call((1,), 1, Role.GRID, "rows"), Call((2,), 2, Role.GRID, "rows")),
        clock.time_us,
        deadline=6.0,
        rounds=100,
        min_rounds=9,
        generator=np.random.default_rng(0),
        on_round=lambda tally: None,
        on_progress=lambda done, total: told.append((clock.now_s, done / total)),
        now=lambda: clock.now_s,
    )
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert all(share == pytest.approx(now_s / 6.0, abs=0.03) for now_s, share in told if now_s > 4.0)
    assert shares[-1] > 0.95


def test_with_time_enough_all_rounds_and_calls_are_kept() -> None:
    tally, clock = rounds_within(60.0)
    assert tally.kept == (0, 1, 2, 3)
    assert len(tally.times_us) == 20
    assert tally.times_us[0] == [1e4, 2e4, 3e4, 1e6]
    assert tally.notes == []
    # The first visit of each call is not among the samples.
    assert len(clock.timed) == 4 + 20 * (4 + 8)


def test_rounds_give_way_first() -> None:
    # A round costs 1.06 s and 8 anchors of 0.03 s, 1.3 s together: 10 s allow fewer than 20 and more than 9.
    tally, clock = rounds_within(14.0)
    assert tally.kept == (0, 1, 2, 3)
    assert 9 <= len(tally.times_us) < 12
    assert "rounds instead of 20" in tally.notes[0]
    assert clock.now_s <= 14.0


def test_then_the_most_expensive_calls_give_way() -> None:
    tally, clock = rounds_within(6.0)
    assert tally.kept == (0, 1, 2)
    assert "1 of 4 calls" in tally.notes[0]
    assert clock.now_s <= 6.0


def test_calls_that_a_fit_needs_never_give_way() -> None:
    # 9 rounds of 1.09 s do not fit into 6 s, nor into 6.9 s, 15 % more: there it ends.
    tally, clock = rounds_within(6.0, essential=frozenset({0, 3}))
    assert {0, 3} <= set(tally.kept)
    assert LEAST_ROUNDS <= len(tally.times_us) < 9
    assert clock.now_s <= 1.15 * 6.0 + 1.5


def test_no_time_at_all_is_an_error_that_says_so() -> None:
    with pytest.raises(BadInputError, match="no call fits") as caught:
        rounds_within(0.05)
    assert "more seconds" in caught.value.hint


def test_this_machine_says_what_it_is() -> None:
    machine = this_machine()
    assert machine.usable_cores >= 1
    assert machine.memory_bytes > machine.available_bytes > 0
    start = time.perf_counter()
    assert read_bandwidth_bytes_per_s(1, 1 << 20) > 1e8
    assert time.perf_counter() - start < 5
