"""Latency targets: which figures keep them, and what is said when none of the settings does."""

from dataclasses import replace

import pytest

from placer.choosing import Candidate
from placer.hbm import ServerSettings
from placer.objective import Objective
from placer.prediction import Prediction
from placer.serving import NEVER, ServingFigures
from placer.targets import Reached, excess, meets_targets, missed_flags, relaxed, targets_missed
from placer.workload import Workload

FIGURES = Prediction(
    decode_step_ms=400.0,
    moe_step_us=300_000.0,
    tpot_ms_mean=400.0,
    tpot_ms_p95=400.0,
    ttft_ms_mean=1_000.0,
    ttft_ms_p95=1_000.0,
    output_tokens_per_s=2.5,
    cold_share=0.5,
    per_layer_ms=(400.0,),
    output_token_us=400_000.0,
)
ONE = ServerSettings(1, 96, 64, "bf16")
FOUR = ServerSettings(4, 384, 1024, "fp8")
BOTH = Workload(64, 32, 4, slo_tpot_ms=300.0, slo_ttft_ms=900.0)


def reached(settings: ServerSettings, tpot_ms: float, ttft_ms: float | None) -> Reached:
    return Reached(settings, replace(FIGURES, tpot_ms_p95=tpot_ms, ttft_ms_p95=ttft_ms))


def test_a_target_that_is_just_reached_is_kept() -> None:
    assert meets_targets(BOTH, replace(FIGURES, tpot_ms_p95=300.0, ttft_ms_p95=900.0))
    assert missed_flags(BOTH, replace(FIGURES, tpot_ms_p95=300.1, ttft_ms_p95=900.0)) == ("--slo-tpot",)
    # What is not predicted keeps no target.
    assert missed_flags(BOTH, replace(FIGURES, tpot_ms_p95=1.0, ttft_ms_p95=None)) == ("--slo-ttft",)
    # 400 of 300 ms is a third too much, 1,000 of 900 a ninth.
    assert excess(BOTH, FIGURES) == pytest.approx(4 / 3)


def test_the_error_says_by_how_much_the_nearest_misses_and_at_which_settings() -> None:
    workload = Workload(64, 32, 4, slo_tpot_ms=300.0)
    error = targets_missed(workload, [reached(ONE, 330.0, 10.0), reached(FOUR, 600.0, 10.0)], "relax it")
    assert error.what == (
        "no level meets --slo-tpot of 300 ms (best level reaches 330.0 ms at p95, +10.0%: "
        "1 running request, chunk 64, bf16 KV)"
    )
    assert error.hint == "relax it"
    assert error.exit_code == 3


def test_each_target_that_nothing_reaches_is_named() -> None:
    error = targets_missed(BOTH, [reached(ONE, 330.0, 1_800.0), reached(FOUR, 600.0, 990.0)], "")
    assert "--slo-tpot of 300 ms (best level reaches 330.0 ms at p95, +10.0%: 1 running request" in error.what
    assert (
        "--slo-ttft of 900 ms (best level reaches 990.0 ms at p95, +10.0%: 4 running requests" in error.what
    )


def test_targets_that_are_reached_one_at_a_time_are_said_so() -> None:
    tried = [reached(ONE, 200.0, 1_800.0), reached(FOUR, 330.0, 450.0)]
    assert targets_missed(BOTH, tried, "").what == (
        "no level meets both latency targets at once (each alone is reached by some level); the nearest answers "
        "--slo-tpot of 300 ms with 330.0 ms (+10.0%) and --slo-ttft of 900 ms with 450.0 ms (-50.0%), "
        "at 4 running requests, chunk 1,024, fp8 KV"
    )


def test_a_ttft_that_is_not_predicted_says_why() -> None:
    workload = Workload(64, 32, 4, slo_ttft_ms=900.0)
    assert "prompts are left out" in targets_missed(workload, [reached(ONE, 1.0, None)], "").what
    outrun = ServingFigures(
        NEVER, NEVER, NEVER, 1.0, 1.0, 0.0, 1.0, 1, 0.0, capacity_per_s=1.0, falls_behind=True
    )
    behind = Reached(ONE, replace(FIGURES, ttft_ms_p95=None, serving=outrun))
    assert "falls behind the arrivals" in targets_missed(workload, [behind], "").what


@pytest.mark.parametrize(
    ("tried", "said"),
    [
        # Three digits, never below what was reached.
        ([(330.04, 10.0)], "relax to --slo-tpot 331, the other target kept"),
        ([(0.1201, 1_000.0)], "relax to --slo-ttft 1000, the other target kept"),
        # One raised target is preferred to two.
        ([(330.0, 990.0), (900.0, 450.0)], "relax to --slo-tpot 900, the other target kept"),
        ([(330.0, 990.0)], "relax to --slo-tpot 330 --slo-ttft 990"),
    ],
)
def test_targets_are_relaxed_to_what_is_reached(tried: list[tuple[float, float]], said: str) -> None:
    assert relaxed(BOTH, [reached(ONE, *each) for each in tried]) == said


def test_short_steps_that_fall_behind_are_no_better_than_longer_ones_that_keep_up() -> None:
    served = ServingFigures(NEVER, NEVER, NEVER, 1.0, 1.0, None, 1.0, 1, 0.0, capacity_per_s=1.0)
    few = replace(FIGURES, tpot_ms_p95=20.0, serving=replace(served, falls_behind=True))
    many = replace(FIGURES, tpot_ms_p95=30.0, serving=served)
    outrun, keeping = Candidate(few, 2.0), Candidate(many, 1.0)
    assert keeping.better_than(outrun, Objective.LATENCY)
    assert not outrun.better_than(keeping, Objective.LATENCY)
    # Where both fall behind, or neither does, the shorter p95 TPOT is better.
    assert outrun.better_than(replace(keeping, figures=replace(many, serving=few.serving)), Objective.LATENCY)
