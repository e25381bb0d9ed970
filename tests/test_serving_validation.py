"""A small model served by vLLM's CPU engine under its own benchmark, and what placer predicts of it."""

from dataclasses import replace
from pathlib import Path

import pytest
from profiles import kernel
from small_traces import token_trace
from vllm_server import PYTHON, needs_plugin, needs_vllm

from placer.examples.engine_steps import EngineSteps
from placer.examples.random_moe import RandomMoe
from placer.examples.serving_case import Point, ServedCase, ServingCase, serve_case
from placer.examples.serving_prediction import AS_TIMED, Figures
from placer.examples.serving_validation import CASES, against_null, errors, main, shortcomings
from placer.examples.vllm_process import VllmEnvironment

SMALL = ServingCase(
    name="small-moe",
    sizes=RandomMoe(1024, 512, experts=16, top_k=4, layers=3, heads=8, kv_heads=2),
    prompt_tokens=32,
    output_tokens=32,
    variation=0.5,
    runs={1: 8, 4: 24, 12: 60},
    calibrated_at=4,
    kernel_seconds=8.0,
    batches=(1, 2, 4, 8, 12) * 2,
    steps=16,
)
LIMIT = 0.25
"""Experts at half or twice their time miss by more. `serving_validation` has the limits for an idle machine."""


@pytest.mark.runtime
@needs_vllm
@needs_plugin
def test_a_served_model_is_predicted_from_its_parts(tmp_path: Path) -> None:
    served = serve_case(SMALL, VllmEnvironment(PYTHON, core=0), tmp_path, print)
    assert served.kernel.output_error < 0.01
    assert served.steps.trace.header.top_k == 4
    assert all(point.measured.output_tokens_per_s > 0 for point in served.points)
    if served.kernel.quiet_warning:
        pytest.skip(f"what a client measures beside other programs is theirs: {served.kernel.quiet_warning}")
    for point in served.points:
        if not point.fitted:
            assert point.predicted.output_tokens_per_s == pytest.approx(
                point.measured.output_tokens_per_s, rel=LIMIT
            )
            assert point.predicted.tpot_ms == pytest.approx(point.measured.tpot_ms, rel=LIMIT)
    # Steps of one request and of twelve differ by more than any noise, so constant steps miss what is predicted.
    assert max(map(abs, errors(served.points, "tpot_ms", "predicted"))) < max(
        map(abs, errors(served.points, "tpot_ms", "null"))
    )


def figures(**changes: float) -> Figures:
    return replace(Figures(100.0, 10.0, 12.0, 50.0), **changes)


def served(*points: Point, share: float = 0.7) -> ServedCase:
    """Of a made-up case only what is judged."""
    steps = EngineSteps({}, {}, {1: share, 16: 0.9}, token_trace([[[0]]], experts=1))
    return ServedCase(CASES["tiny-moe"], kernel(), steps, AS_TIMED, points)


def point(predicted: Figures, null: Figures, *, fitted: bool = False) -> Point:
    return Point(4, 16, fitted, figures(), figures(), predicted, null, others_busy=0.4)


def test_a_limit_that_is_not_kept_is_named() -> None:
    good, null = point(figures(), figures(output_tokens_per_s=130, tpot_p95_ms=9)), figures(tpot_p95_ms=20)
    assert shortcomings(served(good)) == []
    (found,) = shortcomings(
        served(good, point(figures(output_tokens_per_s=84), replace(null, output_tokens_per_s=50)))
    )
    assert found == "tiny-moe: output_tokens_per_s is off by -16.0%, more than 15%"


def test_constant_steps_that_predict_as_well_are_named_where_experts_decide() -> None:
    close = point(figures(output_tokens_per_s=105, tpot_p95_ms=13), figures(tpot_p95_ms=20))
    found = shortcomings(served(close))
    assert found == ["tiny-moe: output_tokens_per_s is off by 5.0% on average, by constant steps 0.0%"]
    assert shortcomings(served(close, share=0.1)) == []
    assert against_null(served(close, share=0.1)) == found


def test_the_point_that_was_fitted_is_no_test() -> None:
    off, null = figures(output_tokens_per_s=500), figures(output_tokens_per_s=130, tpot_p95_ms=20)
    assert shortcomings(served(point(off, null, fitted=True), point(figures(), null))) == []


def test_without_vllm_it_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--python", str(tmp_path / "python")]) == 4
    assert "make test-runtimes" in capsys.readouterr().err
