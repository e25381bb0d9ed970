"""`placer verify`: which layer-steps are run, what is compared, and a real run on small experts."""

import json
from dataclasses import replace

import numpy as np
import pytest
from placements import placement
from small_traces import token_trace
from tiny_model import tiny_model

from placer.errors import BadInputError
from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument
from placer.profiler.fit import ErrorFigures
from placer.profiler.profile import Profile
from placer.profiler.profiling import ProfileRequest, profile_model
from placer.profiler.steps import StepKind, Steps
from placer.profiler.timing.layer_timing import (
    LayerStep,
    TimedLayerStep,
    affordable,
    cold_layer_steps,
    predicted_us,
)
from placer.profiler.trace.trace import TokenTrace
from placer.verification import VerifyRequest, verify


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
    request = VerifyRequest(layer_steps=12, running=4, max_seconds=15.0)
    found = verify(half_hot(profile), model, trace, profile, request, resident_bytes=1 << 20)
    document = json.loads(json.dumps(found.document(), allow_nan=False))
    assert {"steps", "layers", "measured_us", "predicted_us", "mape", "p90_error", "bias", "worst"} <= set(
        document
    )
    assert document["layers"] == 4
    assert document["layer_steps"] == 12
    assert document["repeats"] >= 9
    # A call of this size takes tens of microseconds, mostly overhead that a busy machine doubles.
    assert 0.3 < document["predicted_us"] / document["measured_us"] < 3.0
    errors = [abs(worst["error"]) for worst in document["worst"]]
    assert errors == sorted(errors, reverse=True)
    # Four tokens of top 2, of which about half go to the cold half.
    assert all(1 <= worst["rows"] <= 8 and worst["cold_experts"] <= 4 for worst in document["worst"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("all hot", "nothing to run"),
        ("another method", "AMXINT4"),
        ("another machine", "was made on a CPU from elsewhere"),
        ("no layer-steps", "--layer-steps is 0"),
        ("no requests", "--running is -1"),
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
    elif change == "another method":
        plan = half_hot(profile, cpu_method="AMXINT4")
    elif change == "another machine":
        machine = replace(profile.cpu.machine, cpu="a CPU from elsewhere")
        profile = replace(profile, cpu=replace(profile.cpu, machine=machine))
    elif change == "no layer-steps":
        request = replace(request, layer_steps=0)
    else:
        request = replace(request, running=-1)
    with pytest.raises(BadInputError, match=said):
        verify(plan, model, trace, profile, request, resident_bytes=1 << 20)


def test_few_seconds_take_the_first_layer_steps_and_never_none(
    job: tuple[ModelSpec, TokenTrace, Profile],
) -> None:
    kernel = job[2].cpu
    candidates = [LayerStep(step, 0, (2, 1), 4) for step in range(50)]
    one_us = predicted_us(kernel, candidates[0])
    # 16 rounds of ten layer-steps, and half a layer-step to spare.
    assert affordable(candidates, kernel, 16 * 10.5 * one_us / 1e6) == candidates[:10]
    assert affordable(candidates, kernel, 0.0) == candidates[:1]
