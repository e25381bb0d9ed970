"""Objectives: what each weighs of a level's step times, and requests that make no sense with them."""

from typing import Any

import pytest

from placer.errors import BadInputError
from placer.objective import (
    OUTPUT_TOKEN,
    Limit,
    Objective,
    Weighting,
    limits_of,
    mean_tpot,
    stopped_share,
    weighed,
)
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.step_time import ConstantStepTimes
from placer.robust import Criterion
from placer.serving import serving_figures
from placer.solve_request import SolveRequest
from placer.workload import Workload


def test_a_request_waits_for_its_own_step_and_for_the_prompts_of_the_others() -> None:
    # Four run. A decode step of 40 µs is 10 µs per output token; prompts take 5 µs per output token.
    decode_us, prefill_us = 10.0, 5.0
    weighting = mean_tpot(4)
    # In 40 µs of a token's step, each of three others gets a token too, whose share of a prompt stops this one.
    assert weighting.decode * decode_us + weighting.prefill * prefill_us == 40.0 + 3 * 5.0
    # Alone nobody stops it.
    assert mean_tpot(1) == Weighting(1.0, 0.0)


def test_prompts_that_share_a_chunk_stop_a_request_once() -> None:
    assert stopped_share(1, Workload(64, 32, 1)) == 1.0
    assert stopped_share(2, Workload(64, 32, 2)) == pytest.approx(1.0)
    # Two others end in either of two steps: in the same one half of the time, so 1.5 steps stop it instead of 2.
    assert stopped_share(3, Workload(64, 2, 3)) == pytest.approx(0.75)


@pytest.mark.parametrize(("running", "output"), [(8, 16), (8, 64), (16, 32), (16, 64), (16, 512)])
def test_no_plan_is_faster_than_what_is_out_of_reach(running: int, output: int) -> None:
    # Decode steps of 10 ms, prefill steps of 30 ms; eight prompts fit into a chunk.
    server = Server(Scheduler.SGLANG, running, 100_000, 512)
    workload = Workload(64, output, running)
    found = serving_figures(ConstantStepTimes(10_000, 30_000), server, workload, seed=0).tpot_ms.p95
    weighting = mean_tpot(running)
    alone = weighting.decode * 10 / running + weighting.prefill * 30 / output
    assert found >= alone * stopped_share(running, workload)
    if (running, output) == (16, 64):
        # 10 + 15 * 30 / 64 is more than is simulated.
        assert found < alone


def test_throughput_and_goodput_weigh_the_time_of_an_output_token() -> None:
    assert weighed(Objective.THROUGHPUT, 4) == weighed(Objective.GOODPUT, 4) == OUTPUT_TOKEN
    assert weighed(Objective.LATENCY, 4) == mean_tpot(4)


def test_targets_limit_mean_times() -> None:
    workload = Workload(64, 32, 4, slo_tpot_ms=2.0, slo_ttft_ms=30.0)
    tpot, ttft = limits_of(workload, 4, prompts_known=True)
    assert tpot == Limit("--slo-tpot", Weighting(4.0, 3.0), 2_000.0)
    # A prompt's own time is its share of an output token times the 32 tokens that pay for it.
    assert ttft == Limit("--slo-ttft", Weighting(0.0, 32.0), 30_000.0)
    assert limits_of(workload, 4, prompts_known=False) == (tpot,)
    assert limits_of(Workload(64, 32, 4), 4, prompts_known=True) == ()


def test_a_weighting_is_at_least_so_many_times_another() -> None:
    # 4 d + 3 p is at least 3 (d + p), whatever the times; 32 p may be nothing of it.
    assert Weighting(4.0, 3.0).over(OUTPUT_TOKEN) == 3.0
    assert Weighting(0.0, 32.0).over(OUTPUT_TOKEN) == 0.0
    assert OUTPUT_TOKEN.plus(Weighting(4.0, 3.0), 0.5) == Weighting(3.0, 2.5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objective": Objective.GOODPUT}, "goodput counts requests that keep the latency targets"),
        ({"objective": Objective.LATENCY, "robust": Criterion.TIME}, "not for latency"),
        (
            {
                "objective": Objective.GOODPUT,
                "prefill_from": "none",
                "workload": Workload(64, 32, 4, slo_ttft_ms=1.0),
            },
            "--slo-ttft cannot be judged",
        ),
    ],
)
def test_objectives_that_cannot_be_judged_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        SolveRequest(**{"workload": Workload(64, 32, 4), "budget_bytes": 1 << 30, **changes})
