"""`placer verify` with both sides at once: what is compared, a real run in two threads, and the reason for none."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from jsonschema import Draft202012Validator
from placements import placement
from profiles import profile
from rich.console import Console, RenderableType
from small_traces import token_trace
from tiny_model import line, tiny_cost, tiny_model

from placer import joined_verification
from placer.answer.joined_verification import joined_answer
from placer.joined_verification import JoinedVerification, hot_side_problem, verify_joined
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.calibration import Calibration
from placer.profiler.factor import Factors
from placer.profiler.profile import Profile
from placer.profiler.timing.joined_step import JoinedStep
from placer.profiler.timing.joined_timing import JoinedSpec, TimedJoinedStep, predicted_sides_us, time_joined
from placer.schemas.schema import schema


def plain(answer: RenderableType) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(answer)
    return " ".join(capture.get().split())


STEP = JoinedStep(3, 1, hot_rows=(2, 1), cold_rows=(1,), tokens=4)


def test_the_longer_side_is_what_a_layer_takes() -> None:
    cost = tiny_cost(hot=line(5.0, 50.0, 10.0))
    cost = replace(cost, rates=replace(cost.rates, transfer_call_us=30.0, transfer_token_us=0.5))
    # Hot: 5 + (50 + 20) + (50 + 10). Cold: 20 + 110, and 30 + 4·0.5 of transfers.
    assert predicted_sides_us(cost, STEP) == pytest.approx((135.0, 162.0))
    timed = TimedJoinedStep(STEP, 180.0, 135.0, 162.0)
    assert timed.predicted_us == 162.0
    assert timed.error == pytest.approx(-0.1)


def test_a_run_states_its_error_and_which_side_binds() -> None:
    verification = JoinedVerification(
        (TimedJoinedStep(STEP, 180.0, 135.0, 162.0), TimedJoinedStep(STEP, 100.0, 120.0, 90.0)),
        (3, 4), 9, "a beside b",
    )  # fmt: skip
    document = verification.document()
    Draft202012Validator(schema("verify")["properties"]["hot_side"]).validate(document)
    assert document["run"]
    assert (document["measured_us"], document["predicted_us"]) == (140.0, 141.0)
    assert document["mape"] == pytest.approx(0.15)
    assert document["hot_bound_share"] == 0.5
    assert [worst["error"] for worst in document["worst"]] == pytest.approx([0.2, -0.1])
    assert document["worst"][0]["layer"] == 4
    said = plain(joined_answer(verification))
    assert "MAPE 15.0%" in said
    assert "longer one in 50.0%" in said


def test_both_sides_run_at_once_in_a_process_of_their_own() -> None:
    # FP8 on the CPU stands where the GPU would: what is checked is that every part of the way works.
    shape = ExpertShape(hidden_size=128, expert_intermediate_size=64, experts=6, top_k=3)
    spec = JoinedSpec(
        device="cpu", cold_backend="torch", threads=1, subpools=1, cold_shape=shape, hot_backend="torch",
        hot_shape=shape, steps=(STEP, replace(STEP, hot_rows=(1,), cold_rows=(4, 2))), seed=0, max_seconds=5.0,
        resident_bytes=1 << 18,
    )  # fmt: skip
    timed, repeats, kernels = time_joined(spec, tiny_cost())
    assert repeats >= 5
    assert [each.joined_step for each in timed] == list(spec.steps)
    assert all(each.measured_us > 0 for each in timed)
    assert kernels.startswith("row-wise scaled_mm, expert by expert, CPU beside ")


def verified(folder: Path, made: Profile | None = None) -> JoinedVerification:
    ids = np.tile(np.array([[[0, 1]] * 4]), (40, 1, 1))
    trace = token_trace(ids, experts=8, request=np.repeat(np.arange(10), 4).tolist())
    plan = placement({layer: [0] for layer in range(4)}, layers=range(4), experts=8)
    return verify_joined(
        plan, tiny_model(folder), trace, made or profile(), layer_steps=4, max_seconds=5.0, seed=0
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_the_answer_says_so(tmp_path: Path) -> None:
    found = verified(tmp_path)
    assert found.document() == {"run": False, "reason": "no CUDA device"}
    assert plain(joined_answer(found)) == "hot side not run: no CUDA device"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_kernel_that_fails_leaves_the_cold_side_standing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A GPU that was there a moment ago.
    monkeypatch.setattr(joined_verification, "hot_side_problem", lambda model, profile: None)
    assert "finds no CUDA device" in str(verified(tmp_path).not_run)


def test_kernels_alone_are_compared_whatever_the_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FP8 on the CPU stands where the GPU would, as above."""
    factors = Factors(cold=3.0, hot=4.0, transfer=5.0)
    calibration = Calibration("", "", factors, {}, (), (), 0.1, 0.0, (), "", "", ())
    made = replace(profile(), calibration=calibration)
    assert made.cost_model() != made.kernel_cost_model()

    def on_the_cpu(
        made: Profile, *, chosen: tuple[JoinedStep, ...], max_seconds: float, seed: int
    ) -> JoinedSpec:
        shape = made.cpu.shape
        return JoinedSpec(
            device="cpu", cold_backend="torch", threads=1, subpools=1, cold_shape=shape, hot_backend="torch",
            hot_shape=shape, steps=chosen, seed=seed, max_seconds=max_seconds,
        )  # fmt: skip

    monkeypatch.setattr(joined_verification, "hot_side_problem", lambda model, profile: None)
    monkeypatch.setattr(joined_verification, "joined_spec", on_the_cpu)
    found = verified(tmp_path, made)
    assert found.not_run is None
    assert len(found.timed) == 4
    for each in found.timed:
        kernels = predicted_sides_us(made.kernel_cost_model(), each.joined_step)
        assert (each.hot_us, each.cold_us) == kernels


def test_four_bit_experts_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    four_bit = replace(tiny_model(tmp_path), gpu_format="mxfp4_f32")
    assert hot_side_problem(four_bit, profile()) == "no kernel here computes experts in mxfp4_f32"
