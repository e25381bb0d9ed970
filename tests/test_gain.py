"""What a plan gains over another, and how often its interval holds the true gain."""

from itertools import product
from math import comb

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_model import tiny_cost, tiny_model

from placer.gain import Gains, _unblurred, gains
from placer.hbm import HbmLedger, ServerSettings
from placer.level import Level
from placer.model.spec import ModelSpec
from placer.profiler.trace.trace import CountTrace, Phase, TokenTrace, TraceHeader
from placer.replays import Replays
from placer.workload import Workload


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def traffic(
    tiny: ModelSpec, left: NDArray[np.bool_], *, tokens: int = 6, domain: NDArray[np.bool_] | None = None
) -> TokenTrace:
    """A request per entry: all its tokens choose experts 0 and 1 in every layer where ``left``, else 6 and 7."""
    requests, L = left.size, len(tiny.moe_layers)
    ids = np.where(left[:, None], np.array([0, 1]), np.array([6, 7])).astype(np.uint16)
    of = np.repeat(np.arange(requests, dtype=np.int32), tokens)
    return TokenTrace(
        header=TraceHeader(
            tiny.name,
            tiny.moe_layers,
            tiny.experts,
            tiny.top_k,
            "made up",
            () if domain is None else ("a", "b"),
        ),
        topk_ids=np.repeat(ids[of][:, None], L, axis=1),
        request=of,
        position=np.tile(np.arange(tokens, dtype=np.int32), requests),
        phase=np.full(of.size, Phase.DECODE, dtype=np.uint8),
        domain=None if domain is None else domain.astype(np.int16)[of],
    )


def mask(tiny: ModelSpec, hot: list[int]) -> NDArray[np.bool_]:
    """The same hot experts in every layer."""
    placed = np.zeros((len(tiny.moe_layers), tiny.experts), dtype=np.bool_)
    placed[:, hot] = True
    return placed


def gained(
    tiny: ModelSpec,
    trace: TokenTrace | CountTrace,
    running: int,
    *,
    hot: tuple[list[int], list[int]] = ([0, 1], [6, 7]),
    seed: int = 0,
    mix: dict[str, float] | None = None,
) -> Gains:
    settings = ServerSettings(running, 4096, 64, "bf16")
    level = Level(settings, HbmLedger(1, {"unused": 1}), 8)
    workload = Workload(prompt_tokens=64, output_tokens=32, concurrency=running)
    cost = tiny_cost()
    costs = Replays(trace, seed, "none", step_factor=4).costs(tiny, cost, level, workload, 1)
    return gains(
        mask(tiny, hot[0]),
        {"other": mask(tiny, hot[1])},
        trace,
        costs,
        model=tiny,
        cost=cost,
        level=level,
        workload=workload,
        tp=1,
        prefill_from="none",
        seed=seed,
        mix=mix or {},
    )


def layer_us(cold_tokens: int, hot_tokens: int) -> float:
    """One layer: cold 20 and 100 + 10 n µs for each of two experts with n rows, hot 5 and 2 + n."""
    cold = 20.0 + (2 * (100.0 + 10.0 * cold_tokens) if cold_tokens else 0.0)
    hot = 5.0 + (2 * (2.0 + hot_tokens) if hot_tokens else 0.0)
    return max(cold, hot)


def true_gain(share: float, running: int) -> float:
    """Time of [6, 7] hot over time of [0, 1] hot, less 1, where a slot holds a left request with this probability."""
    plan = other = 0.0
    for left in range(running + 1):
        often = comb(running, left) * share**left * (1 - share) ** (running - left)
        plan += often * layer_us(running - left, left)
        other += often * layer_us(left, running - left)
    # Each of four layers has a base of 10 µs.
    return (other + 10.0) / (plan + 10.0) - 1.0


def test_the_same_placement_gains_nothing_for_sure(tiny: ModelSpec) -> None:
    trace = traffic(tiny, np.arange(20) % 2 == 0)
    found = gained(tiny, trace, 1, hot=([0, 1], [0, 1]))
    assert (found.over["other"].mean, found.over["other"].low, found.over["other"].high) == (0.0, 0.0, 0.0)
    assert found.indistinct() == ("other",)
    assert found.requests == 20


def test_a_plan_for_all_requests_is_surely_faster(tiny: ModelSpec) -> None:
    """Every request is left: 30 against 250 µs of a layer, and no request differs."""
    found = gained(tiny, traffic(tiny, np.ones(20, dtype=bool)), 1)
    assert found.over["other"].mean == pytest.approx(true_gain(1.0, 1), rel=1e-4)
    assert found.over["other"].low == pytest.approx(found.over["other"].mean)
    assert found.indistinct() == ()


def test_balanced_requests_prove_no_gain(tiny: ModelSpec) -> None:
    found = gained(tiny, traffic(tiny, np.arange(40) % 2 == 0), 4)
    assert found.indistinct() == ("other",)


@pytest.mark.parametrize(("share", "running"), list(product((0.5, 0.7), (1, 4))))
def test_the_interval_holds_the_true_gain_in_ninety_five_of_a_hundred_traces(
    tiny: ModelSpec, share: float, running: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traces of 40 requests, each left with a known probability: the true gain is that over all such requests.

    Of 100 intervals at 95 % at least 87 hold it with probability 0.9995 (binomial), and an interval that is much
    too wide holds it always.
    """
    monkeypatch.setattr("placer.gain._MOST_STEPS", 1024)
    random = np.random.default_rng(1)
    truth, held, width = true_gain(share, running), 0, []
    for number in range(100):
        found = gained(tiny, traffic(tiny, random.random(40) < share), running, seed=number).over["other"]
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
        width.append((found.high - found.low) / 3.92)
    assert held >= 87
    # The gain's own spread: how far it moves with the share of left requests among 40.
    slope = (true_gain(share + 0.01, running) - true_gain(share - 0.01, running)) / 0.02
    assert np.median(width) == pytest.approx(slope * np.sqrt(share * (1 - share) / 40), rel=0.35)


def test_noise_is_taken_out_of_a_spread_as_far_as_the_requests_tell() -> None:
    assert _unblurred(4.0, 0.0, 19) == 1.0
    assert _unblurred(4.0, 1.0, 19) == pytest.approx(np.sqrt(0.75))
    # A variance over 19 requests is known to sqrt(2 / 18), a third of it.
    assert _unblurred(4.0, 4.0, 19) == _unblurred(4.0, 9.0, 19) == pytest.approx(np.sqrt(1 / 3))
    assert _unblurred(4.0, 4.0, 2) == 1.0
    assert _unblurred(0.0, 0.0, 19) == 0.0


def test_a_mix_is_resampled_within_its_domains(tiny: ModelSpec) -> None:
    """Requests of a domain are all alike, so with the mix given there is nothing left to be unsure of."""
    left = np.arange(40) < 10
    trace = traffic(tiny, left, domain=~left)
    found = gained(tiny, trace, 1, mix={"a": 0.25, "b": 0.75}).over["other"]
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low < 0.1
    free = gained(tiny, trace, 1).over["other"]
    assert free.low is not None
    assert free.high is not None
    assert free.high - free.low > 0.3


def test_equal_seeds_give_equal_intervals(tiny: ModelSpec) -> None:
    trace = traffic(tiny, np.arange(40) % 3 == 0)
    assert gained(tiny, trace, 4, seed=3) == gained(tiny, trace, 4, seed=3)


def test_few_requests_and_counts_have_no_interval_and_say_why(tiny: ModelSpec) -> None:
    few = gained(tiny, traffic(tiny, np.arange(7) % 2 == 0), 1)
    assert few.over["other"].low is None
    assert few.no_interval == "7 requests are reported on: at least 8 are needed"
    counts = np.zeros((9, 4, 8), dtype=np.int64)
    counts[:, :, [0, 1]] = 10
    header = traffic(tiny, np.ones(8, dtype=bool)).header
    alone = gained(tiny, CountTrace(header, counts, np.full(9, 10)), 1)
    assert alone.no_interval is not None
    assert alone.indistinct() == ()
