"""`placer calibrate`: factors put into a synthetic server come back out, and what does not belong is refused."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_results import sglang_result, vllm_result, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kt_log import line
from placements import placement
from profiles import profile
from small_traces import token_trace
from tiny_model import tiny_model

from placer.benchmark_figures import benchmark_server, benchmark_traffic
from placer.calibrating import CalibrateRequest, calibrate
from placer.errors import BadInputError
from placer.level_cost import step_costs
from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument, write_placement
from placer.placement_times import PlacementTimes
from placer.planned_level import planned_level
from placer.profiler.benchmark_file import read_benchmark_file
from placer.profiler.calibration import CalibratedFigure, contradiction_warnings, extreme_warnings
from placer.profiler.factor import UNCALIBRATED, FactorName, Factors
from placer.profiler.kt_timing_log import read_kt_timing_log
from placer.profiler.profile import Profile, read_profile, write_profile
from placer.profiler.request_play import MeanStepTimes, PlayFigures
from placer.profiler.serving.server import Scheduler
from placer.profiler.serving.simulation import simulate
from placer.profiler.steps import StepKind
from placer.profiler.trace.file import write_trace
from placer.profiler.trace.split import split_requests
from placer.profiler.trace.trace import TokenTrace
from placer.replays import EVALUATION_SEED, SPLIT_SHARES, Replays
from placer.runtime_verification import verify_runtime
from placer.workload import Workload

Run = Callable[..., tuple[int, str, str]]
TRAFFIC = Workload(prompt_tokens=64, output_tokens=32, concurrency=8)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-moe")


@pytest.fixture(scope="module")
def trace() -> TokenTrace:
    """40 requests of 50 tokens, experts chosen uniformly."""
    ids = np.argsort(np.random.default_rng(0).random((2000, 4, 8)), axis=2)[:, :, :2]
    return token_trace(ids, experts=8, request=np.repeat(np.arange(40), 50).tolist())


def served(**changes: Any) -> PlacementDocument:
    """Experts 0 and 1 of every layer hot, eight running requests, as `profile` was timed."""
    kt = {"threads": 1, "subpools": 1}
    hot = {layer: [0, 1] for layer in range(4)}
    return placement(hot, layers=range(4), experts=8, **{"cpu_method": "torch", "kt": kt, **changes})


def replays(trace: TokenTrace) -> Replays:
    return Replays(split_requests(trace, SPLIT_SHARES, seed=0)[2], 2 * EVALUATION_SEED, "decode")


def measured(
    model: ModelSpec,
    trace: TokenTrace,
    truth: Factors,
    *,
    clients: int = 8,
    requests: int = 64,
    scheduler: Scheduler = Scheduler.SGLANG,
    **changes: Any,
) -> dict[str, Any]:
    """What a server would measure whose cost model is the profile's under ``truth``."""
    plan, steps = served(), replays(trace)
    level = planned_level(plan).settings
    workload = replace(TRAFFIC, concurrency=clients)
    cost = profile().kernel_cost_model().calibrated(truth)
    written_by = sglang_result if scheduler is Scheduler.SGLANG else vllm_result
    result = written_by(
        **{
            "max_concurrency": clients,
            "completed": requests,
            "total_input_tokens": requests * TRAFFIC.prompt_tokens,
            "total_output_tokens": requests * TRAFFIC.output_tokens,
            "duration": requests * TRAFFIC.output_tokens / 40.0,
            **changes,
        }
    )

    def mean_us(kind: StepKind, size: int) -> float:
        rows = steps.decode(size) if kind is StepKind.DECODE else steps.prefill(size)
        assert rows is not None
        return float(step_costs(model, cost, rows, level, workload, tp=1).step_us(plan.hot_mask()).mean())

    with tempfile.TemporaryDirectory() as folder:
        (run,) = read_benchmark_file(written(Path(folder) / "b", result)).runs
    each = lru_cache(mean_us)
    times = MeanStepTimes(
        lambda sizes: np.array([each(StepKind.DECODE, int(size)) for size in sizes]),
        lambda sizes: np.array([each(StepKind.PREFILL, int(size)) for size in sizes]),
    )
    played = simulate(benchmark_traffic(run), benchmark_server(model, level, scheduler), times)
    figures = PlayFigures(played.ttft_ms().mean, played.tpot_ms().mean, played.output_tokens_per_s)
    return result | {
        "duration": result["total_output_tokens"] / figures.output_tokens_per_s,
        "mean_ttft_ms": figures.mean_ttft_ms,
        "mean_tpot_ms": figures.mean_tpot_ms,
        "output_throughput": figures.output_tokens_per_s,
        "median_itl_ms": mean_us(StepKind.DECODE, clients) / 1e3,
    }


def fitted(
    model: ModelSpec,
    trace: TokenTrace,
    folder: Path,
    *results: dict[str, Any],
    request: CalibrateRequest | None = None,
) -> Factors:
    file = read_benchmark_file(written(folder / "bench.jsonl", *results))
    found = calibrate(profile(), served(), model, trace, [file], None, request or CalibrateRequest())
    return found.calibration.factors


def test_a_server_that_is_as_predicted_changes_nothing(
    model: ModelSpec, trace: TokenTrace, tmp_path: Path
) -> None:
    assert fitted(model, trace, tmp_path, measured(model, trace, UNCALIBRATED)) == UNCALIBRATED


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cold=st.floats(0.5, 2.0))
def test_the_cold_factor_of_a_server_comes_back(
    model: ModelSpec, trace: TokenTrace, tmp_path: Path, cold: float
) -> None:
    found = fitted(model, trace, tmp_path, measured(model, trace, Factors(cold=cold)))
    assert found.cold == pytest.approx(cold, rel=0.03)


def test_several_numbers_of_clients_tell_factors_apart(
    model: ModelSpec, trace: TokenTrace, tmp_path: Path
) -> None:
    truth = Factors(cold=1.4, base=0.7)
    results = [measured(model, trace, truth, clients=clients) for clients in (1, 8)]
    found = fitted(model, trace, tmp_path, *results)
    assert found.cold == pytest.approx(1.4, rel=0.02)
    assert found.base == pytest.approx(0.7, rel=0.05)


def test_a_server_is_scheduled_as_its_own_benchmark_client_says(
    model: ModelSpec, trace: TokenTrace, tmp_path: Path
) -> None:
    truth = Factors(cold=1.4)
    # Of different lengths, so that prompts come while others decode.
    lengths = {"input_lens": [64] * 64, "output_lens": [8, 56] * 32}
    result = measured(model, trace, truth, scheduler=Scheduler.VLLM, **lengths)
    file = read_benchmark_file(written(tmp_path / "bench.json", result))
    auto, forced = (
        calibrate(profile(), served(), model, trace, [file], None, CalibrateRequest(scheduler=each))
        for each in (None, Scheduler.SGLANG)
    )
    assert auto.calibration.factors.cold == pytest.approx(1.4, rel=0.01)
    assert auto.calibration.error_after < 0.001
    # By SGLang's rules prompts hold all decoding up, which no factor makes up for.
    assert forced.calibration.error_after > 0.02


@pytest.mark.parametrize("scheduler", list(Scheduler))
@pytest.mark.parametrize("rate", [50.0, 250.0])
def test_an_open_loop_is_played_at_its_arrivals(
    model: ModelSpec, trace: TokenTrace, tmp_path: Path, scheduler: Scheduler, rate: float
) -> None:
    """At 250 requests per second the server falls behind, which the one that was predicted does not."""
    lengths = {"input_lens": [64] * 64, "output_lens": [32] * 64}
    sent = (np.random.default_rng(0).exponential(1 / rate, 64).cumsum() + 1e4).tolist()
    open_loop = {"request_rate": rate, "max_concurrency": None, "start_times": sent, **lengths}
    result = measured(model, trace, Factors(cold=1.4), scheduler=scheduler, **open_loop)
    file = read_benchmark_file(written(tmp_path / "bench.jsonl", result))
    found = calibrate(profile(), served(), model, trace, [file], None, CalibrateRequest()).calibration
    assert found.factors == Factors(cold=pytest.approx(1.4, rel=0.01))
    tpot, ttft, throughput, _ = found.figures
    assert (tpot.fitted, ttft.fitted) == (True, True)
    for figure in (tpot, ttft, throughput):
        assert abs(figure.error_after) < 0.01 or abs(figure.error_after) < abs(figure.error_before)
    # No prompt is longer than 64 tokens, and the kernels were timed at more.
    assert not any("extrapolated beyond" in each or "repeats" in each for each in found.distrust)


@pytest.mark.parametrize(
    "sent",
    [{"max_concurrency": 2}, {"max_concurrency": None, "request_rate": 1000.0, "start_times": [1.0, 1.0]}],
    ids=["closed", "open"],
)
def test_a_run_whose_every_step_holds_a_prompt_is_played(
    model: ModelSpec, trace: TokenTrace, tmp_path: Path, sent: dict[str, Any]
) -> None:
    """The first request ends while the second's prompt is still cut into chunks; that one has a single token."""
    lengths = {
        "input_lens": [8, 5000],
        "output_lens": [3, 1],
        "total_input_tokens": 5008,
        "total_output_tokens": 4,
    }
    stated = {
        "completed": 2,
        "duration": 1.0,
        "output_throughput": 4.0,
        "mean_ttft_ms": 100.0,
        "mean_tpot_ms": 100.0,
    }
    result = vllm_result(**lengths, **stated, **sent, num_prompts=2)
    file = read_benchmark_file(written(tmp_path / "b", result))
    found = calibrate(profile(), served(), model, trace, [file], None, CalibrateRequest()).calibration
    assert [each.name for each in found.figures] == ["TPOT mean", "TTFT mean", "output tokens"]


def test_steps_that_only_the_calibrated_server_runs_are_told_as_extrapolated(
    model: ModelSpec, trace: TokenTrace, tmp_path: Path
) -> None:
    """Predicted, two prompts of 512 tokens wait at a time at most; the slower server's fill chunks of 2,048."""
    lengths = {"input_lens": [512] * 64, "output_lens": [8] * 64}
    totals = {"total_input_tokens": 64 * 512, "total_output_tokens": 64 * 8}
    stated = {"duration": 1.0, "output_throughput": 512.0, "request_rate": 90.0, "max_concurrency": None}
    result = measured(model, trace, Factors(cold=1.8), **lengths, **totals, **stated)
    file = read_benchmark_file(written(tmp_path / "b", result))
    found = calibrate(profile(), served(), model, trace, [file], None, CalibrateRequest()).calibration
    (beyond,) = (each for each in found.distrust if "beyond the timed range" in each)
    assert beyond == "extrapolated beyond the timed range: prefill steps of 1024, prefill steps of 2048"


@pytest.mark.parametrize(
    ("burstiness", "said"),
    [
        (1.0, "drawn at exponential distances (--save-detailed)"),
        (0.25, "drawn at gamma-distributed distances of burstiness 0.25 (--save-detailed)"),
        (float("inf"), "taken at even distances (--save-detailed)"),
    ],
)
def test_an_open_loop_without_times_has_the_distances_of_its_client(
    model: ModelSpec, trace: TokenTrace, tmp_path: Path, burstiness: float, said: str
) -> None:
    open_loop = {"request_rate": 50.0, "max_concurrency": None, "burstiness": burstiness}
    result = measured(model, trace, Factors(cold=1.4), scheduler=Scheduler.VLLM, **open_loop)
    file = read_benchmark_file(written(tmp_path / "b", result))
    found = calibrate(profile(), served(), model, trace, [file], None, CalibrateRequest()).calibration
    assert found.factors.cold == pytest.approx(1.4, rel=0.03)
    assert f"when requests of the run arrived is not in the file: {said}" in found.distrust
    assert any("mean length (--save-detailed)" in each for each in found.distrust)


def test_the_parts_of_a_step_are_what_the_calibrated_cost_model_says(
    model: ModelSpec, trace: TokenTrace
) -> None:
    truth = Factors(cold=1.3, hot=5.0, base=0.8, transfer=2.0, step_us=100.0)
    plan, cost, steps = served(), profile().kernel_cost_model(), replays(trace)
    level = planned_level(plan).settings
    times = PlacementTimes(model, cost, plan.hot_mask(), steps, level, TRAFFIC, tp=1)
    whole = step_costs(model, cost.calibrated(truth), steps.decode(4), level, TRAFFIC, tp=1)
    parts = times.sides(StepKind.DECODE, 4)
    assert np.allclose(parts.layer_us(truth), whole.layer_us(plan.hot_mask()), rtol=1e-5)
    assert parts.step_us(truth) == pytest.approx(float(whole.step_us(plan.hot_mask()).mean()), rel=1e-5)


@pytest.fixture
def files(model: ModelSpec, trace: TokenTrace, tmp_path: Path) -> dict[str, Path]:
    """profile.json, placement.json, a trace, the model's folder, and a benchmark of a server at cold ×1.3."""
    paths = {
        "profile": tmp_path / "profile.json",
        "placement": tmp_path / "placement.json",
        "trace": tmp_path / "trace.safetensors",
        "model": tmp_path / "tiny-moe",
        "benchmark": tmp_path / "bench.jsonl",
    }
    tiny_model(paths["model"])
    write_profile(profile(), paths["profile"])
    write_placement(served(), paths["placement"])
    write_trace(trace, paths["trace"])
    written(paths["benchmark"], measured(model, trace, Factors(cold=1.3)))
    return paths


def arguments(files: dict[str, Path], *without: str) -> list[object]:
    return [
        "calibrate",
        *(each for name, path in files.items() if name not in without for each in (f"--{name}", path)),
    ]


def test_a_calibrated_profile_keeps_its_measurements_and_everything_applies_it(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    output = tmp_path / "calibrated.json"
    code, out, _ = run(*arguments(files), "-o", output, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["factors"]["cold"] == pytest.approx(1.3, rel=0.02)
    assert document["error_after"] < 0.01 < document["error_before"]
    assert [each["name"] for each in document["figures"] if not each["fitted"]] == [
        "output tokens",
        "decode step (median ITL)",
    ]
    assert document["replaced"] is None
    before, after = read_profile(files["profile"]), read_profile(output)
    assert after.cpu == before.cpu
    assert after.cost_model().cold.regimes[0].expert_us == pytest.approx(
        document["factors"]["cold"] * before.cpu.cost.regimes[0].expert_us
    )
    assert (before.sha256 == after.sha256, before.calibration) == (False, None)

    solve = ["solve", "--model", files["model"], "--trace", files["trace"], "--hbm-budget", "20GiB"]
    solve += [
        "--concurrency",
        2,
        "--prompt-tokens",
        64,
        "--output-tokens",
        8,
        "--gap",
        0.1,
        "-o",
        tmp_path / "plan.json",
    ]
    code, out, _ = run(*solve, "--profile", output, "--json")
    assert code == 0
    provenance = json.loads(out)["predicted"]["provenance"]
    assert "calibrated: cold ×1.3" in provenance["cold"]
    assert "calibrated" not in provenance["hot"]
    assert "by sglang bench_serving" in provenance["calibration"]
    for command in (
        [
            "evaluate",
            files["placement"],
            "--model",
            files["model"],
            "--trace",
            files["trace"],
            "--profile",
            output,
        ],
        ["explain", tmp_path / "plan.json", "--layer", 1],
    ):
        code, _, err = run(*command)
        assert code == 0
        assert "by sglang bench_serving: cold ×1.3" in err.replace("\n", " ").replace("  ", " ")


def test_calibrating_again_replaces_and_says_so(run: Run, files: dict[str, Path]) -> None:
    output = files["profile"]
    assert run(*arguments(files), "-o", output)[0] == 0
    first = read_profile(output)
    code, _, err = run(*arguments(files), "-o", output)
    assert code == 0
    assert "replaced, not multiplied: calibrated" in err
    assert max(map(len, err.splitlines())) <= 100
    second = read_profile(output)
    assert first.calibration is not None
    assert second.calibration is not None
    assert second.calibration.factors == first.calibration.factors


@pytest.mark.parametrize("missing", ["placement", "model", "trace"])
def test_what_decides_a_step_is_needed(
    run: Run, files: dict[str, Path], tmp_path: Path, missing: str
) -> None:
    code, _, err = run(*arguments(files, missing), "-o", tmp_path / "c.json")
    assert code == 2
    assert "depend on which experts were hot" in err
    assert f"add --{missing}" in err
    assert not (tmp_path / "c.json").exists()


def test_something_must_have_been_measured(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    code, _, err = run(*arguments(files, "benchmark"), "-o", tmp_path / "c.json")
    assert code == 2
    assert "nothing was measured" in err


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"model_path": "/models/another"}, "is of model /models/another"),
        ({"tp_size": 2}, "tp_size 2"),
        ({"kt_method": "AMXINT4"}, "kt_method AMXINT4"),
        ({"kt_cpuinfer": 32}, "kt_cpuinfer 32"),
        ({"max_running_requests": 4}, "max_running_requests 4"),
        ({"chunked_prefill_size": 512}, "chunked_prefill_size 512"),
        ({"kv_cache_dtype": "fp8_e4m3"}, "kv_cache_dtype fp8_e4m3"),
        ({"max_total_tokens": 1024}, "max_total_tokens 1024"),
        ({"max_total_num_tokens": 1024}, "KV pool holds 1,024 tokens"),
        ({"disable_cuda_graph": True}, "disable_cuda_graph True"),
        ({"kt_weight_path": None}, "without kt-kernel"),
        # Two of eight experts are hot in each of four layers; half an expert more cuts after the eighth.
        ({"kt_gpu_experts_ratio": 0.5}, "kept 16 experts hot, the placement 8"),
        ({"kt_num_gpu_experts": 3}, "kept 12 experts hot, the placement 8"),
        ({"kt_max_deferred_experts_per_token": 2}, "deferred experts"),
    ],
)
def test_a_server_of_something_else_is_refused_unless_forced(
    run: Run, files: dict[str, Path], tmp_path: Path, server: dict[str, Any], said: str
) -> None:
    result = json.loads(files["benchmark"].read_text())
    written(files["benchmark"], result | {"server_info": server})
    code, _, err = run(*arguments(files), "-o", tmp_path / "c.json")
    assert code == 2
    assert said in " ".join(err.split())
    assert f"benchmark {files['benchmark']}:" in " ".join(err.split())
    assert not (tmp_path / "c.json").exists()
    code, _, err = run(*arguments(files), "--force", "-o", tmp_path / "c.json")
    assert code == 0
    assert "warning: forced: the" in err


def test_a_server_that_says_what_was_planned_is_taken(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    result = json.loads(files["benchmark"].read_text())
    server = {
        "model_path": "/models/Tiny-MoE/",
        "tp_size": 1,
        "kt_weight_path": "/models/int4",
        "kt_gpu_experts_ratio": 8.5 / 32,
        "kt_num_gpu_experts": None,
        "kt_expert_placement_strategy": "uniform",
        "max_running_requests": 8,
        "kv_cache_dtype": "auto",
        "max_total_tokens": served().kv.tokens,
        "max_total_num_tokens": served().kv.tokens,
    }
    written(files["benchmark"], result | {"server_info": server})
    assert run(*arguments(files), "-o", tmp_path / "c.json")[0] == 0


def test_another_model_is_seen_in_vllms_result_too(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    written(files["benchmark"], vllm_result(model_id="qwen3"))
    code, _, err = run(*arguments(files), "-o", tmp_path / "c.json")
    assert code == 2
    assert "is of model qwen3" in err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"mean_tpot_ms": NaN}', "\ufffe\x00", '{"a": 1}\n{"b": 2}'])
def test_hostile_files_end_with_what_and_what_to_do(
    run: Run, files: dict[str, Path], tmp_path: Path, text: str
) -> None:
    files["benchmark"].write_text(text)
    code, out, err = run(*arguments(files), "-o", tmp_path / "c.json")
    assert (code, out) == (2, "")
    error, _, cure = err.partition("do: ")
    assert error.startswith("error: ")
    assert cure.strip()
    assert not (tmp_path / "c.json").exists()


def test_a_factor_that_is_out_of_range_in_a_profile_is_refused(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    output = tmp_path / "c.json"
    assert run(*arguments(files), "-o", output)[0] == 0
    document = json.loads(output.read_text())
    document["calibration"]["factors"]["cold"] = -1.0
    output.write_text(json.dumps(document))
    with pytest.raises(BadInputError, match="calibration"):
        read_profile(output)


def timing_log(
    path: Path, model: ModelSpec, trace: TokenTrace, truth: Factors, *, share: float = 1.0
) -> Path:
    """A log of layers 0 and 3 in decode steps of 8, of a server whose cost model is the profile's under ``truth``.

    One of the two copies is handed over before the CPU begins, the other comes back when it has ended.
    """
    plan = served()
    times = PlacementTimes(
        model,
        profile().kernel_cost_model(),
        plan.hot_mask(),
        replays(trace),
        planned_level(plan).settings,
        Workload(512, 128, 8),
        tp=1,
    )
    sides = times.sides(StepKind.DECODE, 8)
    lines = []
    for layer in (0, 3):
        hot_ms = share * truth.hot * sides.hot_us[:, layer].mean() / 1e3
        copy_ms = share * truth.transfer * sides.transfer_us / 2 / 1e3
        cold_ms = share * truth.cold * sides.cold_us[:, layer].mean() / 1e3 + copy_ms
        stages = {"submit": copy_ms, "gpu": hot_ms}
        lines += [
            line(layer=layer, step=step, tokens=8, mask=0.0, sync=0.0, merge=cold_ms - hot_ms, **stages)
            for step in range(1, 17)
        ]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def slow_profile(monkeypatch: pytest.MonkeyPatch) -> Profile:
    """The profile with an expert's time in milliseconds: the log holds hundredths of them."""
    plain = profile()
    scaled = replace(
        plain,
        cpu=replace(plain.cpu, cost=plain.cpu.cost.scaled(200.0)),
        gpu=replace(plain.gpu, hot=plain.gpu.hot.scaled(50.0), rates=plain.gpu.rates.with_transfers(100.0)),
    )
    monkeypatch.setitem(globals(), "profile", lambda: scaled)
    return scaled


def test_a_timing_log_tells_the_sides_apart(
    slow_profile: Profile, model: ModelSpec, trace: TokenTrace, tmp_path: Path
) -> None:
    truth = Factors(cold=1.25, hot=0.8, transfer=1.5)
    log = read_kt_timing_log(timing_log(tmp_path / "server.log", model, trace, truth))
    asked = CalibrateRequest(tuple(FactorName))
    found = calibrate(slow_profile, served(), model, trace, [], log, asked)
    factors = found.calibration.factors
    assert factors.cold == pytest.approx(1.25, rel=0.01)
    assert factors.hot == pytest.approx(0.8, rel=0.01)
    assert factors.transfer == pytest.approx(1.5, rel=0.01)
    assert factors.base == 1.0
    assert "hardly depend on it" in found.calibration.reasons[FactorName.BASE]
    assert any("without CUDA graphs" in each for each in found.calibration.distrust)


def test_launches_in_a_log_are_fitted_only_where_they_are_asked_for(
    slow_profile: Profile, model: ModelSpec, trace: TokenTrace, tmp_path: Path
) -> None:
    log = read_kt_timing_log(timing_log(tmp_path / "server.log", model, trace, Factors(cold=1.25, hot=0.8)))
    found = calibrate(slow_profile, served(), model, trace, [], log, CalibrateRequest()).calibration
    assert found.factors == Factors(cold=pytest.approx(1.25, rel=0.01))
    for name in (FactorName.HOT, FactorName.TRANSFER):
        assert "made without CUDA graphs" in found.reasons[name]


def test_a_run_that_is_given_twice_is_named_and_counts_once(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    command = [*arguments(files), "--benchmark", files["benchmark"], "-o", tmp_path / "c.json", "--json"]
    code, out, _ = run(*command)
    assert code == 0
    found = json.loads(out)
    assert len(found["sources"]) == 1
    assert len(found["figures"]) == 4
    assert (
        "bench.jsonl repeats a run that was given before (bench.jsonl) and is counted once"
        in found["distrust"]
    )
    files["benchmark"].write_text("\n".join([files["benchmark"].read_text()] * 2))
    code, out, _ = run(*arguments(files), "-o", tmp_path / "c.json", "--json")
    assert code == 0
    assert any("bench.jsonl, run 2 repeats a run" in each for each in json.loads(out)["distrust"])


def test_a_benchmark_of_which_half_failed_is_refused_unless_forced(
    run: Run, files: dict[str, Path], model: ModelSpec, trace: TokenTrace, tmp_path: Path
) -> None:
    result = measured(model, trace, UNCALIBRATED)
    written(files["benchmark"], result | {"errors": [""] * 64 + ["refused"] * 64})
    code, _, err = run(*arguments(files), "-o", tmp_path / "c.json")
    assert code == 2
    assert "64 of 128 requests of a benchmark got no answer" in " ".join(err.split())
    code, _, err = run(*arguments(files), "--force", "-o", tmp_path / "c.json")
    assert code == 0
    assert "warning: forced: 64 of 128 requests" in err
    written(files["benchmark"], result | {"errors": [""] * 64 + ["refused"] * 63})
    assert run(*arguments(files), "-o", tmp_path / "c.json")[0] == 0


def test_a_calibration_that_changes_nothing_says_so(
    run: Run, files: dict[str, Path], model: ModelSpec, trace: TokenTrace, tmp_path: Path
) -> None:
    written(files["benchmark"], measured(model, trace, UNCALIBRATED))
    code, _, err = run(*arguments(files), "-o", tmp_path / "c.json")
    assert code == 0
    assert "no factor changed: every prediction stays as it was" in " ".join(err.split())
    assert "now apply these factors" not in err


def figure(name: str, before: float, after: float, *, fitted: bool = False) -> CalibratedFigure:
    """A figure of 100 ms that was predicted as ``before`` and ``after``."""
    return CalibratedFigure(name, "ms", 100.0, before, after, fitted, 8)


def test_a_check_that_the_factors_make_worse_contradicts_them() -> None:
    cold = Factors(cold=0.8)
    step = figure("decode step", 95.5, 76.0)
    (said,) = contradiction_warnings(cold, [figure("TPOT", 125.0, 100.0, fitted=True), step], 0.2, 0.1)
    assert "the check decode step contradicts cold ×0.800: off by -4.5% without and -24.0% with it" in said
    assert contradiction_warnings(cold, [figure("decode step", 95.5, 90.0)], 0.2, 0.1) == ()
    (said,) = contradiction_warnings(cold, [], 0.2, 0.25)
    assert "no better (mean error 20.0% before, 25.0% after)" in said
    assert contradiction_warnings(UNCALIBRATED, [step], 0.2, 0.2) == ()


def test_an_error_that_no_factor_explains_is_a_warning(
    model: ModelSpec, trace: TokenTrace, tmp_path: Path
) -> None:
    """Two runs of the same traffic, one of a faster server than predicted and one of a slower."""
    results = [measured(model, trace, Factors(cold=cold)) for cold in (0.6, 1.8)]
    file = read_benchmark_file(written(tmp_path / "bench.jsonl", *results))
    found = calibrate(profile(), served(), model, trace, [file], None, CalibrateRequest()).calibration
    assert found.factors == UNCALIBRATED
    assert found.error_after == found.error_before > 0.2
    assert "no value of it brings the figures much closer" in found.reasons["cold"]
    (said,) = found.warnings
    assert said.startswith(
        f"warning: a mean error of {found.error_after:.1%} is left that no factor explains"
    )
    (said,) = contradiction_warnings(Factors(cold=1.2), [], 0.5, 0.21)
    assert "a mean error of 21.0% is left" in said


def test_an_extreme_factor_is_shown_beyond_its_limit() -> None:
    (said,) = extreme_warnings(Factors(cold=2.0004), 1000.0)
    assert said.startswith("warning: cold ×2.0004 is outside 0.5 to 2")
    (said,) = extreme_warnings(Factors(cold=0.49996), 1000.0)
    assert said.startswith("warning: cold ×0.49996 is outside 0.5 to 2")
    (said,) = extreme_warnings(Factors(cold=2.7181), 1000.0)
    assert said.startswith("warning: cold ×2.72 is outside")
    assert extreme_warnings(Factors(cold=2.0, hot=0.5, step_us=500.0), 1000.0) == ()


def test_verify_takes_the_runtimes_own_times(
    slow_profile: Profile, model: ModelSpec, trace: TokenTrace, tmp_path: Path
) -> None:
    log = read_kt_timing_log(timing_log(tmp_path / "server.log", model, trace, UNCALIBRATED))
    found = verify_runtime(served(), model, trace, slow_profile, log)
    document = json.loads(json.dumps(found.document(), allow_nan=False))
    assert {"steps", "layers", "measured_us", "predicted_us", "mape", "p90_error", "bias", "worst"} <= set(
        document
    )
    assert (document["layers"], document["layer_steps"], document["steps"]) == (2, 32, 16)
    # The cold side binds in almost every step, so the mean of the slower side is the slower mean.
    assert document["mape"] < 0.03
    # A server that is a quarter slower: predictions are a fifth too low, and a calibration takes that away.
    log = read_kt_timing_log(timing_log(tmp_path / "s.log", model, trace, Factors(cold=1.25, transfer=1.25)))
    assert verify_runtime(served(), model, trace, slow_profile, log).errors.bias == pytest.approx(
        -0.2, abs=0.03
    )
    asked = CalibrateRequest(tuple(FactorName))
    calibrated = calibrate(slow_profile, served(), model, trace, [], log, asked).profile
    assert verify_runtime(served(), model, trace, calibrated, log).errors.mape < 0.03


def test_verify_prints_a_log(
    run: Run,
    files: dict[str, Path],
    slow_profile: Profile,
    model: ModelSpec,
    trace: TokenTrace,
    tmp_path: Path,
) -> None:
    write_profile(slow_profile, files["profile"])
    log = timing_log(tmp_path / "server.log", model, trace, UNCALIBRATED)
    command = ["verify", files["placement"], "--model", files["model"], "--trace", files["trace"]]
    command += ["--profile", files["profile"], "--kt-log", log]
    code, out, err = run(*command)
    assert (code, out) == (0, "")
    assert "layers as the runtime timed them" in err
    assert "…" not in err
    assert "measured  predicted" in err
    assert max(map(len, err.splitlines())) <= 100
    code, out, _ = run(*command, "--json")
    assert code == 0
    assert json.loads(out)["side"] == "runtime"
    for option, value in {
        "--running": "4",
        "--prefill": "none",
        "--layer-steps": 3,
        "--max-seconds": 5,
    }.items():
        code, _, err = run(*command, option, value)
        assert code == 2
        assert f"--kt-log and {option} were both given" in err


def test_times_that_only_starting_takes_are_refused(
    slow_profile: Profile, model: ModelSpec, trace: TokenTrace, tmp_path: Path
) -> None:
    log = read_kt_timing_log(timing_log(tmp_path / "server.log", model, trace, UNCALIBRATED, share=0.05))
    with pytest.raises(BadInputError, match="the time to start the work") as caught:
        verify_runtime(served(), model, trace, slow_profile, log)
    assert "SGLANG_KT_HYBRID_TIMING_DEEP=1" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (line(layer=20), "layer 20, which is no MoE layer"),
        (line(tokens=9000), "a call of 9,000 tokens"),
        (line(), "fewer than 3 calls"),
    ],
)
def test_a_log_of_another_server_is_refused(
    model: ModelSpec, trace: TokenTrace, tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "server.log"
    path.write_text(text)
    with pytest.raises(BadInputError, match=said):
        verify_runtime(served(), model, trace, profile(), read_kt_timing_log(path))
