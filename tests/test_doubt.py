"""What a plan keeps in the middle of its band and not at the slow end: which target, and what is reached."""

import math
from dataclasses import replace

import pytest

from placer.band import Band, FigureBands
from placer.doubt import SLOW_END, slow_end_doubts
from placer.prediction import Prediction
from placer.serving import NEVER, ServingFigures
from placer.workload import Workload

LOAD = Workload(64, 32, 4)


def found(tpot_high_ms: float, ttft_high_ms: float) -> Prediction:
    """A plan of 48 ms per token and 730 ms to the first, at p95."""
    tpot, ttft = Band(24.0, 48.0, tpot_high_ms), Band(442.0, 730.0, ttft_high_ms)
    return Prediction(
        decode_step_ms=48.0,
        moe_step_us=40_000.0,
        tpot_ms_mean=48.0,
        tpot_ms_p95=48.0,
        ttft_ms_mean=730.0,
        ttft_ms_p95=730.0,
        output_tokens_per_s=51.2,
        cold_share=0.5,
        per_layer_ms=(40.0,),
        output_token_us=8_000.0,
        bands=FigureBands(Band(40.0, 51.2, 51.2), tpot, tpot, ttft, ttft),
    )


@pytest.mark.parametrize(
    ("tpot_ms", "ttft_ms", "said"),
    [
        (
            100.0,
            5_000.0,
            "--slo-tpot of 100 ms (127 ms at p95) and --slo-ttft of 5000 ms (42.2 s at p95)",
        ),
        (100.0, None, "--slo-tpot of 100 ms (127 ms at p95)"),
        (127.0, 5_000.0, "--slo-ttft of 5000 ms (42.2 s at p95)"),
        # The digits show that 127 is beyond 126.9.
        (126.9, None, "--slo-tpot of 126.9 ms (127.0 ms at p95)"),
        # What the middle of the band misses is told as that.
        (40.0, 5_000.0, "--slo-ttft of 5000 ms (42.2 s at p95)"),
    ],
)
def test_targets_that_the_slow_end_misses_are_named(tpot_ms: float, ttft_ms: float | None, said: str) -> None:
    workload = replace(LOAD, slo_tpot_ms=tpot_ms, slo_ttft_ms=ttft_ms)
    assert slow_end_doubts(found(127.0, 42_200.0), workload) == (f"{SLOW_END}the plan misses {said}",)


def test_nothing_is_said_where_the_slow_end_keeps_all_or_no_target_is_to_be_kept() -> None:
    assert slow_end_doubts(found(127.0, 42_200.0), LOAD) == ()
    kept = replace(LOAD, slo_tpot_ms=127.0, slo_ttft_ms=42_200.0)
    assert slow_end_doubts(found(127.0, 42_200.0), kept) == ()
    missed = replace(LOAD, slo_tpot_ms=100.0)
    assert slow_end_doubts(found(127.0, 42_200.0), missed, each_target=False) == ()
    assert slow_end_doubts(replace(found(127.0, 42_200.0), bands=None), missed) == ()


def test_a_slow_end_that_falls_behind_is_said_in_words() -> None:
    behind = (
        f"{SLOW_END}the server falls behind the requests that arrive, and TTFT grows for as long as they do"
    )
    assert slow_end_doubts(found(127.0, math.inf), LOAD) == (behind,)
    targets = replace(LOAD, slo_tpot_ms=100.0, slo_ttft_ms=5_000.0)
    assert slow_end_doubts(found(127.0, math.inf), targets) == (
        f"{behind}; the plan misses --slo-tpot of 100 ms (127 ms at p95) and --slo-ttft of 5000 ms there",
    )


def test_a_server_that_falls_behind_anyway_is_not_said_to_do_so_at_the_slow_end() -> None:
    outrun = ServingFigures(
        NEVER, NEVER, NEVER, 1.0, 1.0, 0.0, 1.0, 1, 0.0, capacity_per_s=1.0, falls_behind=True
    )
    always = replace(found(127.0, math.inf), ttft_ms_p95=None, serving=outrun)
    assert slow_end_doubts(always, LOAD) == ()
    assert slow_end_doubts(always, replace(LOAD, slo_tpot_ms=100.0)) == (
        f"{SLOW_END}the plan misses --slo-tpot of 100 ms (127 ms at p95)",
    )
