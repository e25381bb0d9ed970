"""The measured base in a profile: what the worker says, what a file may hold, and that a plan uses it."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from profiles import profile
from tiny_model import tiny_cost, tiny_model

from placer.errors import BadInputError, MissingComponentError
from placer.hbm import ServerSettings
from placer.level_cost import step_costs
from placer.profiler.base_cost import BaseCost, BasePart, TokenCurve
from placer.profiler.merged_profile import merge_profiles
from placer.profiler.profile import Profile, read_profile, write_profile
from placer.profiler.steps import StepKind, Steps
from placer.profiler.timing.base_plan import base_plan
from placer.profiler.timing.base_profile import profile_base, run_plan
from placer.workload import Workload

BASE = BaseCost(
    device="cuda", machine="a GPU", kernels="torch 0", tp=1, layers=4,
    parts=(BasePart("attention", 4, False, TokenCurve((1, 16), (2.0, 17.0)), 0.01),),
    attention=(), all_reduce=None, assumed_layer_us=0.0, untimed_weights_bytes=0, state_request_bytes=0,
    bytes_per_s=1e12, bf16_flops=1e12, notes=("nothing else was timed",),
)  # fmt: skip


def with_base(base: BaseCost | None = BASE) -> Profile:
    made = profile()
    return replace(made, gpu=replace(made.gpu, base=base))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_nothing_is_timed_and_the_reason_is_given(tmp_path: Path) -> None:
    with pytest.raises(MissingComponentError, match="finds no CUDA device") as caught:
        profile_base(tiny_model(tmp_path), 1, max_seconds=5.0)
    assert "--gpu NAME" in caught.value.hint


def test_a_worker_that_crashes_is_named_with_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import torch\ndef fails(*_): raise SystemError('no driver')\ntorch.cuda.get_device_properties = fails\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(
        MissingComponentError, match=r"while starting: ended with code 1: SystemError: no driver"
    ):
        run_plan(base_plan(tiny_model(tmp_path / "tiny"), 1, max_seconds=5.0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_a_base_is_timed(tmp_path: Path) -> None:
    cost = profile_base(tiny_model(tmp_path), 1, max_seconds=30.0)
    assert cost.fault(1) is None
    assert cost.machine == torch.cuda.get_device_name(0)
    assert all(us > 0 for part in cost.parts for us in part.curve.us)


def test_a_plan_takes_the_measured_base(tmp_path: Path) -> None:
    steps = Steps(np.ones((1, 4, 8), dtype=np.int32), np.array([4]), StepKind.DECODE)
    settings = ServerSettings(max_running_requests=4, kv_tokens=64, chunk_tokens=16, kv_dtype="bf16")
    workload = Workload(prompt_tokens=16, output_tokens=8, concurrency=4)
    cost = replace(tiny_cost(), base=BASE)
    made = step_costs(tiny_model(tmp_path), cost, steps, settings, workload, 1)
    # Four launches of 2 + 3 microseconds, and nothing of the datasheet's layers.
    assert made.base_us == pytest.approx(20.0)


def test_a_profile_keeps_the_base_through_file_and_merge(tmp_path: Path) -> None:
    made = with_base()
    write_profile(made, tmp_path / "profile.json")
    read = read_profile(tmp_path / "profile.json")
    assert read == made
    assert read.cost_model().base == BASE
    assert read.gpu.base_provenance_text.startswith("measured on a GPU (torch 0; parts off by up to 1%")
    assert merge_profiles(profile(cpu="another CPU"), made).gpu.base == BASE


def test_an_earlier_profile_has_no_base_and_says_datasheet(tmp_path: Path) -> None:
    document = profile().document()
    del document["gpu"]["base"]
    (tmp_path / "profile.json").write_text(json.dumps(document))
    read = read_profile(tmp_path / "profile.json")
    assert read.gpu.base is None
    assert read.gpu.base_provenance_text.startswith("datasheet of rtx-4090")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"device": "cpu"}, "was timed on 'cpu', not on a GPU"),
        ({"tp": 2}, "was timed for tp 2"),
        ({"bytes_per_s": 0.0}, "out of range"),
        ({"all_reduce": TokenCurve((4, 1), (1.0, 1.0))}, "do not ascend"),
        ({"all_reduce": TokenCurve((1, 4), (1.0, -1.0))}, "out of range"),
        ({"all_reduce": TokenCurve((1, 4), (1.0,))}, "not as many"),
    ],
)
def test_a_base_that_cannot_serve_is_refused(change: dict[str, object], said: str, tmp_path: Path) -> None:
    write_profile(with_base(replace(BASE, **change)), tmp_path / "profile.json")
    with pytest.raises(BadInputError, match=f"field gpu.base: .*{said}"):
        read_profile(tmp_path / "profile.json")
