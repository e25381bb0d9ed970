"""`placer solve --objective`: what is written, what is printed, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from profiles import profile
from small_traces import phased
from tiny_model import tiny_model

from placer.placement import read_placement
from placer.profiler.profile import write_profile
from placer.profiler.trace.file import write_trace

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    write_trace(phased(tiny_model(folder / "model")), folder / "trace.safetensors")
    write_profile(profile(), folder / "profile.json")
    return folder


def solve(job: Path, output: Path, *more: object, trace: str | None = None) -> list[object]:
    return [
        "solve",
        *("--model", job / "model", "--trace", trace or job / "trace.safetensors"),
        *("--profile", job / "profile.json", "--hbm-budget", "8GiB", "--concurrency", 4),
        *("--prompt-tokens", 64, "--output-tokens", 32, "-o", output),
        *more,
    ]


def solver_of(path: Path) -> dict[str, Any]:
    read_placement(path)
    section: dict[str, Any] = json.loads(path.read_text())["solver"]
    return section


@pytest.mark.parametrize("trace", [None, "none"])
def test_the_placement_says_which_objective_and_what_it_reached(
    job: Path, printed: Run, tmp_path: Path, trace: str | None
) -> None:
    path = tmp_path / "p.json"
    code, _, err = printed(*solve(job, path, trace=trace))
    assert code == 0, err
    predicted = json.loads(path.read_text())["predicted"]
    assert solver_of(path)["objective_name"] == "throughput"
    assert solver_of(path)["objective_reached"] == predicted["output_tokens_per_s"]
    code, _, err = printed(*solve(job, path, "--objective", "latency", trace=trace))
    assert code == 0, err
    predicted = json.loads(path.read_text())["predicted"]
    assert solver_of(path)["objective_name"] == "latency"
    assert solver_of(path)["objective_reached"] == predicted["tpot_ms"]["p95"]
    assert solver_of(path)["objective_unit"] == "ms TPOT at p95"
    assert "objective latency: " in err
    code, _, err = printed(
        *solve(job, path, "--objective", "goodput", "--slo-tpot", 1000, "--slo-ttft", 1000, trace=trace)
    )
    assert code == 0, err
    assert solver_of(path)["objective_name"] == "goodput"
    assert solver_of(path)["objective_reached"] > 0
    assert "objective goodput: " in err
    assert all(len(line) <= 100 for line in err.splitlines() if str(tmp_path) not in line)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--objective", "speed"], "use one of: throughput, latency, goodput"),
        (["--objective", "goodput"], "give --slo-tpot, --slo-ttft or both"),
        (["--objective", "latency", "--robust", "time"], "not for latency"),
    ],
)
def test_objectives_without_meaning_are_refused(
    job: Path, run: Run, tmp_path: Path, options: list[str], said: str
) -> None:
    code, _, err = run(*solve(job, tmp_path / "p.json", *options))
    assert code == 2
    assert said in err
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize("trace", [None, "none"])
@pytest.mark.parametrize("objective", ["throughput", "latency", "goodput"])
def test_a_target_below_a_step_without_experts_is_told_at_once(
    job: Path, printed: Run, tmp_path: Path, trace: str | None, objective: str
) -> None:
    options = ["--objective", objective, "--slo-tpot", "0.001"]
    code, _, err = printed(*solve(job, tmp_path / "p.json", *options, trace=trace))
    assert code == 3
    said = " ".join(err.split())
    assert "relax to --slo-tpot" in said
    assert "out of reach of any plan is --slo-tpot of 0.001 ms (a decode step of one request takes" in said
    assert "Tried in vain" not in said


@pytest.mark.parametrize("trace", [None, "none"])
@pytest.mark.parametrize("objective", ["throughput", "latency", "goodput"])
def test_a_target_out_of_reach_ends_with_3_and_what_was_tried(
    job: Path, printed: Run, tmp_path: Path, trace: str | None, objective: str
) -> None:
    options = ["--objective", objective, "--slo-tpot", "0.15"]
    code, _, err = printed(*solve(job, tmp_path / "p.json", *options, trace=trace))
    assert code == 3
    said = " ".join(err.split())
    nothing = "no request at any level keeps" if objective == "goodput" else "no level meets"
    assert f"{nothing} --slo-tpot of 0.15 ms (best level reaches" in said
    assert "relax to --slo-tpot" in said
    assert "Tried in vain: --kv-dtype fp8, --concurrency 1" in said
    assert not (tmp_path / "p.json").exists()
    assert all(len(line) <= 100 for line in err.splitlines())
