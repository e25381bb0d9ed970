"""`placer verify`: which layer-steps are run, what is compared, and a real run on small experts."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from json_documents import check_document
from placements import placement
from rich.console import Console
from small_traces import token_trace
from tiny_model import tiny_model

from placer.answer.verification import verification_answer
from placer.errors import BadInputError
from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument
from placer.profiler.fit import ErrorFigures
from placer.profiler.profile import Profile
from placer.profiler.profiling import ProfileRequest, profile_model
from placer.profiler.steps import StepKind, Steps
from placer.profiler.timing.anchor import RegimeDrift
from placer.profiler.timing.layer_timing import (
    LayerStep,
    TimedLayerStep,
    affordable,
    cold_layer_steps,
    predicted_us,
)
from placer.profiler.trace.trace import TokenTrace
from placer.verification import Verification, VerifyRequest, default_running, verify


def steps(rows: list[list[list[int]]], tokens: int) -> Steps:
    return Steps(np.array(rows, dtype=np.int32), np.full(len(rows), tokens), StepKind.DECODE)


def test_a_layer_step_holds_the_cold_rows_heaviest_first() -> None:
    # Layer 0 keeps expert 0 hot: rows 1 and 3 are left. Layer 1 is all cold, layer 2 all hot.
    replayed = steps([[[4, 1, 3], [2, 0, 6], [5, 2, 1]]], tokens=8)
    hot = np.array([[True, False, False], [False] * 3, [True] * 3])
    found = cold_layer_steps(replayed, hot, seed=0)
    assert sorted(found, key=lambda each: each.layer) == [
        LayerStep(step=0, layer=0, rows=(3, 1), tokens=8),
        LayerStep(step=0, layer=1, rows=(6, 2), tokens=8),
    ]


def test_the_first_layer_steps_are_of_different_layers() -> None:
    replayed = steps([[[1, 1]] * 6] * 5, tokens=2)
    found = cold_layer_steps(replayed, np.zeros((6, 2), dtype=bool), seed=3)
    assert len(found) == 30
    assert len({(each.step, each.layer) for each in found}) == 30
    for start in range(0, 30, 6):
        assert {each.layer for each in found[start : start + 6]} == set(range(6))


def test_the_error_is_relative_to_the_lower_quartile() -> None:
    timed = TimedLayerStep(LayerStep(0, 0, (1,), 1), p25_us=100.0, p50_us=110.0, predicted_us=95.0)
    assert timed.error == pytest.approx(-0.05)
    figures = ErrorFigures.of(np.array([-0.05, 0.01, 0.03]))
    assert figures.mape == pytest.approx(0.03)
    assert figures.bias == pytest.approx(-0.01 / 3)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelSpec, TokenTrace, Profile]:
    """The tiny model, 40 requests of 50 tokens, and torch's kernel timed at its shapes."""
    model = tiny_model(tmp_path_factory.mktemp("tiny"))
    random = np.random.default_rng(0)
    ids = np.argsort(random.random((2000, 4, 8)), axis=2)[:, :, :2]
    trace = token_trace(ids, experts=8, request=np.repeat(np.arange(40), 50).tolist())
    request = ProfileRequest(cpu_kernel="torch", gpu_name="rtx-4090", threads=1, max_seconds=10.0)
    return model, trace, profile_model(model, trace, request)


def half_hot(profile: Profile, **changes: object) -> PlacementDocument:
    """Experts 0 to 3 of every layer hot, four running requests."""
    changes = {"cpu_method": profile.cpu.method, **changes}
    return placement({layer: [0, 1, 2, 3] for layer in range(4)}, layers=range(4), experts=8, **changes)


def test_measured_and_predicted_are_of_one_size(job: tuple[ModelSpec, TokenTrace, Profile]) -> None:
    model, trace, profile = job
    request = VerifyRequest(layer_steps=24, running=(4,), prefill_tokens=(16,), max_seconds=15.0)
    found = verify(half_hot(profile), model, trace, profile, request, resident_bytes=1 << 20)
    text = json.dumps({**found.document(), "hot_side": {"run": False, "reason": "no CUDA device"}})
    check_document(["verify"], text)
    document = json.loads(text)
    assert {"steps", "layers", "measured_us", "predicted_us", "mape", "p90_error", "bias", "worst"} <= set(
        document
    )
    assert document["layers"] == 4
    assert document["layer_steps"] == 24
    assert document["repeats"] >= 9
    # A call of this size takes tens of microseconds, mostly overhead that a busy machine doubles.
    assert 0.3 < document["predicted_us"] / document["measured_us"] < 3.0
    errors = [abs(worst["error"]) for worst in document["worst"]]
    assert errors == sorted(errors, reverse=True)
    # Four tokens of top 2, of which about half go to the cold half, and chunks of sixteen.
    decode, prefill = document["by_step"]
    assert (decode["kind"], decode["tokens"], decode["layer_steps"]) == ("decode", 4, 12)
    assert (prefill["kind"], prefill["tokens"], prefill["layer_steps"]) == ("prefill", 16, 12)
    assert decode["measured_us"] < prefill["measured_us"]
    # The machine was profiled seconds ago, and may be slower or faster by now.
    (regime,) = document["by_regime"]
    assert regime["anchors"] >= 3
    assert regime["layer_steps"] == 24
    assert document["drift"]["time"] == pytest.approx(regime["drift"])
    assert document["net"]["bias"] == pytest.approx((1 + regime["drift"]) * (1 + document["bias"]) - 1)


def layer_step(tokens: int, p25_us: float, predicted_us: float, drift: float) -> TimedLayerStep:
    return TimedLayerStep(LayerStep(0, 0, (1,), tokens), p25_us, p25_us, predicted_us, drift)


def found_with(drift: float, *, anchors: int = 8) -> Verification:
    """Two calls of 4 tokens on a machine as it was, one of 100 tokens on a machine that changed by ``drift``."""
    timed = (
        layer_step(4, 100.0, 101.0, 0.0),
        layer_step(4, 100.0, 99.0, 0.0),
        layer_step(100, 100.0 * (1 + drift), 100.0, drift),
    )
    drifts = (RegimeDrift(1, 64, anchors, 0.0, 0.01), RegimeDrift(65, None, anchors, drift, 0.01))
    return Verification(timed, (3,), drifts, ErrorFigures.of(np.zeros(3)), 15, "a kernel", None, None, ())


def test_a_machine_that_changed_is_told_from_a_prediction_that_was_wrong() -> None:
    found = found_with(0.06)
    few, many = (part for _, part in found.by_regime())
    assert few is not None
    assert many is not None
    # 100 against 106 measured: the raw error stays what it is, and net of the drift nothing is left.
    assert many.errors.bias == pytest.approx(-6 / 106)
    assert many.net_errors.mape == pytest.approx(0.0)
    assert few.errors.mape == few.net_errors.mape == pytest.approx(0.01)
    assert found.document()["mape"] == pytest.approx((0.01 + 0.01 + 6 / 106) / 3)
    assert found.drift == pytest.approx(0.02)
    assert found.drift_advice == (
        "this machine is now 6% slower in calls of 65 tokens or more than when it was profiled: run placer profile "
        "again"
    )
    assert "6% faster in calls" in str(found_with(-0.06).drift_advice)
    assert found_with(0.03).drift_advice is None


def test_without_anchors_the_drift_is_unknown_and_not_nought() -> None:
    document = found_with(0.0, anchors=0).document()
    assert document["drift"]["time"] is None
    check_document(["verify"], json.dumps({**document, "hot_side": {"run": False, "reason": "no GPU"}}))
    assert "anchor" in document["null_reasons"]["drift.time"]


def test_the_answer_names_errors_by_step_and_by_regime_and_the_drift() -> None:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(verification_answer(found_with(0.06)))
    printed = capture.get()
    assert all(len(line) <= 100 for line in printed.splitlines())
    for said in (
        "decode, 4 running",
        "decode, 100 running",
        "calls of 1 to 64 tokens",
        "calls of 65 tokens or more",
        "warning: this machine is now 6% slower",
    ):
        assert said in printed


@pytest.mark.parametrize(
    ("heldout", "said"),
    [(0.02, "trust the"), (0.01, "trust the"), (0.0, "trust the"), (None, "nothing was timed")],
)
def test_errors_near_the_profiles_own_are_trusted(heldout: float | None, said: str) -> None:
    # (1 + 1 + 5.7) / 3 = 2.6 %: within 5 % whatever the profile's own error is.
    assert said in replace(found_with(0.06), heldout_mape=heldout).judgement


def test_errors_far_beyond_the_profiles_own_are_not_relied_on() -> None:
    # (1 + 1 + 33) / 3 = 11.8 %.
    found = found_with(0.5)
    assert replace(found, heldout_mape=0.05).judgement == (
        "do not rely on the predicted times of the cold side: off by 11.8% on average, where the profile's own "
        "held-out error is 5.0%"
    )


def test_a_bad_profile_makes_no_error_good() -> None:
    # (1 + 1 + 33) / 3 = 11.8 %, (1 + 1 + 67) / 3 = 23 % and (1 + 1 + 93) / 3 = 31 %.
    assert (
        "are rough, as the profile is: off by 11.8%" in replace(found_with(0.5), heldout_mape=0.06).judgement
    )
    assert "are rough, as the profile is" in replace(found_with(2.0), heldout_mape=0.25).judgement
    assert replace(found_with(13.0), heldout_mape=0.25).judgement.startswith("do not rely")


def test_a_plan_beyond_the_border_is_run_below_it_too() -> None:
    assert default_running(8, None) == (8,)
    assert default_running(64, 64) == (64,)
    assert default_running(96, 64) == (32, 96)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("all hot", "nothing to run"),
        ("another method", "AMXINT4"),
        ("another machine", "was made on a CPU from elsewhere"),
        ("more threads", r"this plan assumes 10,000 threads of .*, and this process may use \d+ core"),
        ("running", "--running is 100,000; the placement runs"),
        ("prefill", "--prefill is 100,000; the placement has chunks of"),
    ],
)
def test_what_cannot_be_verified_is_refused_before_anything_runs(
    job: tuple[ModelSpec, TokenTrace, Profile], change: str, said: str
) -> None:
    model, trace, profile = job
    plan, request = half_hot(profile), VerifyRequest(layer_steps=4, max_seconds=10.0)
    if change == "all hot":
        plan = placement(
            {layer: range(8) for layer in range(4)}, layers=range(4), experts=8, cpu_method="torch"
        )
    elif change == "running":
        request = replace(request, running=(1, 100_000))
    elif change == "prefill":
        request = replace(request, prefill_tokens=(100_000,))
    elif change == "another method":
        plan = half_hot(profile, cpu_method="AMXINT4")
    elif change == "more threads":
        profile = replace(profile, cpu=replace(profile.cpu, threads=10_000))
    else:
        machine = replace(profile.cpu.machine, cpu="a CPU from elsewhere")
        profile = replace(profile, cpu=replace(profile.cpu, machine=machine))
    with pytest.raises(BadInputError, match=said):
        verify(plan, model, trace, profile, request, resident_bytes=1 << 20)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"layer_steps": 0}, "--layer-steps is 0"),
        ({"running": (4, -1)}, "--running is -1"),
        ({"prefill_tokens": (0,)}, "--prefill is 0"),
        ({"max_seconds": float("nan")}, "--max-seconds is nan"),
        ({"running": (), "prefill_tokens": ()}, "neither decode steps nor prefill chunks"),
    ],
)
def test_a_request_that_asks_for_nothing_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        VerifyRequest(**fields)


def test_few_seconds_take_the_first_layer_steps_and_never_none(
    job: tuple[ModelSpec, TokenTrace, Profile],
) -> None:
    kernel = job[2].cpu
    candidates = [LayerStep(step, 0, (2, 1), 4) for step in range(50)]
    one_us = predicted_us(kernel, candidates[0])
    # 16 rounds of ten layer-steps, and half a layer-step to spare.
    assert affordable([candidates], kernel, most=50, seconds=16 * 10.5 * one_us / 1e6) == candidates[:10]
    assert affordable([candidates], kernel, most=50, seconds=0.0) == candidates[:1]


def test_cheap_steps_leave_their_time_to_dear_ones(job: tuple[ModelSpec, TokenTrace, Profile]) -> None:
    kernel = job[2].cpu
    cheap = [LayerStep(step, 0, (1,), 1) for step in range(5)]
    dear = [LayerStep(step, 0, (16,) * 8, 64) for step in range(50)]
    cheap_us, dear_us = predicted_us(kernel, cheap[0]), predicted_us(kernel, dear[0])
    assert dear_us > 2 * cheap_us
    seconds = 16 * (5 * cheap_us + 20.5 * dear_us) / 1e6
    assert affordable([dear, cheap], kernel, most=100, seconds=seconds) == cheap + dear[:20]
    # Half of the layer-steps each where time is no limit.
    assert affordable([dear, cheap], kernel, most=8, seconds=1e3) == cheap[:4] + dear[:4]
