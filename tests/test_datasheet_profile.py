"""A server that one does not have: `placer profile --cpu NAME`, and every command that reads such a profile."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from benchmark_results import sglang_result, written
from placements import placement
from profiles import SHAPE
from profiles import profile as timed_profile
from tiny_model import tiny_model

from placer.answer.console import print_answer
from placer.answer.profile import profile_answer
from placer.calibrating import CalibrateRequest, calibrate
from placer.cpu_datasheet import CpuAdjustment, cpu_datasheet
from placer.errors import BadInputError
from placer.modes.comparison import compare
from placer.modes.hardware import datasheet_hardware
from placer.modes.request import CompareRequest
from placer.profiler.attained import attained
from placer.profiler.benchmark_file import read_benchmark_file
from placer.profiler.cold_roofline import BAND
from placer.profiler.cost import Provenance
from placer.profiler.datasheet_cpu import DatasheetCpu
from placer.profiler.datasheet_profile import datasheet_profile
from placer.profiler.merged_profile import merge_profiles
from placer.profiler.profile import read_profile, write_profile
from placer.profiler.profile_use import check_profile_error
from placer.profiler.trace.file import read_trace, write_trace
from placer.profiler.trace.trace import Phase, TokenTrace, TraceHeader
from placer.verification import VerifyRequest, verify
from placer.workload import Workload

Run = Callable[..., tuple[int, str, str]]


def test_a_profile_from_two_names(tmp_path: Path) -> None:
    model = tiny_model(tmp_path, moe_intermediate_size=256)
    made = datasheet_profile(model, "xeon-8480+", "h100-sxm", 2)
    assert isinstance(made.cpu, DatasheetCpu)
    assert (made.cpu.threads, made.cpu.numa_nodes, made.tp) == (55, 1, 2)
    cost = made.cost_model()
    assert cost.cold.provenance is cost.hot.provenance is Provenance.DATASHEET
    # 196,608 weights in RAWINT4: half a byte each and a float32 scale for 32.
    assert made.cpu.bytes_per_expert == 196_608 // 2 + 196_608 // 32 * 4
    assert (made.host_memory_bytes, made.heldout_error) == (None, None)
    assert check_profile_error(made) == ()
    assert attained(made) == ()


def test_it_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    sheet = cpu_datasheet("epyc-9654x2", CpuAdjustment(cores=64, turbo_off=True))
    made = datasheet_profile(tiny_model(tmp_path), sheet, "rtx-4090", method="torch")
    write_profile(made, tmp_path / "profile.json")
    again = read_profile(tmp_path / "profile.json")
    assert again == made
    assert again.sha256 == made.sha256
    assert again.cpu.device == "epyc-9654x2 (64 of 192 cores, turbo off: 2.4 GHz)"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("band", [1.2, 2.0], "field cpu: band 1.2 to 2"),
        ("threads", 0, "out of range"),
        ("cores", "many", "cpu.cores"),
        ("band", [0.5], "cpu.band"),
    ],
)
def test_a_damaged_one_is_refused(tmp_path: Path, field: str, value: object, said: str) -> None:
    document = datasheet_profile(tiny_model(tmp_path), "epyc-9654", "h200").document()
    document["cpu"][field] = value
    (tmp_path / "profile.json").write_text(json.dumps(document))
    with pytest.raises(BadInputError, match=said):
        read_profile(tmp_path / "profile.json")


def test_a_measured_side_replaces_a_datasheet_one(tmp_path: Path) -> None:
    sheet = datasheet_profile(tiny_model(tmp_path), "epyc-9654", "h200", method="torch")
    server = timed_profile(cpu="the server's CPU")
    merged = merge_profiles(server, sheet)
    assert merged.cpu == server.cpu
    assert merged.gpu == sheet.gpu
    assert merged.merged is not None
    assert (merged.merged.cpu.device, merged.merged.gpu.device) == ("the server's CPU", "h200")
    # And the other way round the sheet stands beside a GPU from elsewhere.
    assert merge_profiles(sheet, server).cpu == sheet.cpu


def test_a_kernel_that_cannot_run_the_sizes_is_refused(tmp_path: Path) -> None:
    narrow = tiny_model(tmp_path, hidden_size=192, moe_intermediate_size=96, quantization_config=None)
    with pytest.raises(BadInputError, match="RAWINT4 cannot run") as refused:
        datasheet_profile(narrow, "epyc-9654", "h200")
    # The option of a datasheet, and the one kernel that 32 columns are enough for.
    assert refused.value.hint == "use --cpu-method torch"
    assert datasheet_profile(narrow, "epyc-9654", "h200", method="torch").cpu.method == "torch"


def test_an_expert_that_cannot_be_cut_over_both_sockets_stays_on_one(tmp_path: Path) -> None:
    # 128 columns are one block of RAWINT4, 256 are one for each socket.
    assert datasheet_profile(tiny_model(tmp_path), "epyc-9654x2", "h200").cpu.numa_nodes == 1
    wide = tiny_model(tmp_path, moe_intermediate_size=256)
    assert datasheet_profile(wide, "epyc-9654x2", "h200").cpu.numa_nodes == 2


def test_a_socket_that_no_expert_is_cut_over_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The width of GLM-4.5-Air: 704 on each of two sockets is eleven blocks of 64, and no whole ones of 128.
    model = tiny_model(tmp_path, moe_intermediate_size=1408)
    made = datasheet_profile(model, "xeon-8480+x2", "h100-sxm")
    assert isinstance(made.cpu, DatasheetCpu)
    assert (made.cpu.threads, made.cpu.numa_nodes, made.cpu.nodes_there) == (55, 1, 2)
    unused = (
        "RAWINT4 cannot cut expert width 1,408 into 2 shares of whole 128s: it runs on 1 of the 2 memory nodes of "
        "xeon-8480+x2, with 56 of 112 cores and 307 of 614 GB/s"
    )
    assert made.cpu.notes == (
        f"{unused} (serve with --kt-threadpool-count 1); --cpu-method AMXINT8 runs on all of them",
    )
    assert "55 threads on 1 of 2 memory nodes" in made.cpu.provenance_text
    print_answer(profile_answer(made))
    printed = " ".join(capsys.readouterr().err.split())
    assert "56 of 112 cores at 3 GHz, 55 threads, 307 of 614 GB/s of memory, 1 of 2 memory nodes" in printed
    assert f"note: {unused}" in printed
    with pytest.raises(BadInputError) as caught:
        datasheet_profile(model, "xeon-8480+x2", "h100-sxm", threads=111)
    assert caught.value.what == f"--threads is 111, {unused}"
    assert caught.value.hint == "use --threads 55 or fewer"
    whole = datasheet_profile(model, "xeon-8480+x2", "h100-sxm", method="AMXINT8").cpu
    assert isinstance(whole, DatasheetCpu)
    assert (whole.threads, whole.numa_nodes, whole.notes) == (111, 2, ())
    print_answer(profile_answer(datasheet_profile(model, "xeon-8480+x2", "h100-sxm", method="AMXINT8")))
    printed = " ".join(capsys.readouterr().err.split())
    assert "112 cores at 3 GHz, 111 threads, 614 GB/s of memory, 2 memory nodes" in printed


def test_a_comparison_tells_it_too(tmp_path: Path) -> None:
    model = tiny_model(tmp_path, moe_intermediate_size=1408)
    hardware = datasheet_hardware(model, cpu_datasheet("xeon-8480+x2"), "h100-sxm", None)
    workload = Workload(prompt_tokens=16, output_tokens=16, concurrency=4)
    found = compare(model, hardware, None, CompareRequest(workload, (1,), 8 * 2**30, 8 * 2**30))
    assert isinstance(hardware.profile.cpu, DatasheetCpu)
    assert set(hardware.profile.cpu.notes) < set(found.notes)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint and a skewed trace of it."""
    folder = tmp_path_factory.mktemp("job")
    model = tiny_model(folder / "model")
    generator = np.random.default_rng(0)
    E, L = SHAPE.experts, len(model.moe_layers)
    popularity = np.arange(1, E + 1) ** -1.5
    ids = np.stack(
        [
            [
                generator.choice(E, SHAPE.top_k, replace=False, p=popularity / popularity.sum())
                for _ in range(L)
            ]
            for _ in range(1200)
        ]
    ).astype(np.uint16)
    request = np.repeat(np.arange(30, dtype=np.int32), 40)
    position = np.tile(np.arange(40, dtype=np.int32), 30)
    phase = np.where(position < 20, Phase.PREFILL, Phase.DECODE).astype(np.uint8)
    header = TraceHeader(model.name, model.moe_layers, E, SHAPE.top_k, "made up")
    write_trace(TokenTrace(header, ids, request, position, phase), folder / "trace.safetensors")
    return folder


def solved(job: Path, run: Run, folder: Path) -> Path:
    """A placement solved on the profile in ``folder``."""
    code, _, err = run(
        "solve",
        *(
            "--model",
            job / "model",
            "--trace",
            job / "trace.safetensors",
            "--profile",
            folder / "profile.json",
        ),
        *("--hbm-budget", "4GiB", "--prompt-tokens", 20, "--output-tokens", 20, "--concurrency", 4),
        *("-o", folder / "placement.json"),
    )
    assert code == 0, err
    return folder / "placement.json"


def test_a_plan_for_a_cpu_by_datasheet_says_so_everywhere(job: Path, run: Run, tmp_path: Path) -> None:
    options = ["profile", "--model", job / "model", "--cpu", "xeon-8480+", "--gpu", "rtx-4090"]
    started = time.process_time()
    code, _, err = run(*options, "--turbo-off", "-o", tmp_path / "profile.json")
    assert time.process_time() - started < 5.0
    assert code == 0
    said = " ".join(err.split())
    assert said.startswith("xeon-8480+ (turbo off: 2 GHz) by datasheet, RAWINT4: nothing was timed")
    assert "0.65 to 2 times" in said
    assert "55 threads" in said
    assert all(len(line) <= 100 for line in err.splitlines())
    plan = json.loads(solved(job, run, tmp_path).read_text())
    assert plan["hardware"]["cpu"]["provenance"] == "datasheet"
    assert plan["predicted"]["provenance"]["cold"].startswith("datasheet roofline of xeon-8480+")
    assert plan["null_reasons"]["hardware.cpu.memory_bytes"]
    assert any(note.startswith("warning: the CPU's side is a datasheet") for note in plan["notes"])
    assert plan["kt"] == {"threads": 55, "subpools": 1}
    arguments = ["--model", job / "model", "--trace", job / "trace.safetensors"]
    code, out, _ = run(
        "evaluate", tmp_path / "placement.json", *arguments, "--profile", tmp_path / "profile.json", "--json"
    )
    assert code == 0
    assert json.loads(out)["step_us"]["plan"] > 0
    code, _, err = run(
        "export", tmp_path / "placement.json", "--runtime", "sglang-kt", "-o", tmp_path / "export"
    )
    assert code == 0, err
    readme = (tmp_path / "export" / "README.md").read_text()
    assert (
        "planned from the datasheet of xeon-8480+ (turbo off: 2 GHz), nothing was timed, 55 threads" in readme
    )
    assert "kt-cpuinfer: 55" in (tmp_path / "export" / "config.yaml").read_text()


def test_host_memory_is_checked_only_where_it_is_said(job: Path, run: Run, tmp_path: Path) -> None:
    write_profile(
        datasheet_profile(tiny_model(job / "model"), "epyc-9654", "h200"), tmp_path / "profile.json"
    )
    options = ["solve", "--model", job / "model", "--trace", "none", "--profile", tmp_path / "profile.json"]
    options += ["--hbm-budget", "8GiB", "--prompt-tokens", 20, "--output-tokens", 20, "--concurrency", 4]
    assert run(*options, "-o", tmp_path / "placement.json")[0] == 0
    options += ["--max-hot-per-layer", 7]
    code, _, err = run(*options, "--host-memory", "1MiB", "-o", tmp_path / "placement.json")
    assert code == 3
    assert "host memory" in err


def test_verifying_measures_here_and_says_what_is_a_datasheet(job: Path) -> None:
    model = tiny_model(job / "model")
    made = datasheet_profile(model, "epyc-9354", "rtx-4090", method="torch", threads=1)
    half_hot = placement(
        {layer: [0, 1, 2, 3] for layer in range(4)}, layers=range(4), experts=8, cpu_method="torch"
    )
    request = VerifyRequest(layer_steps=4, running=(4,), prefill_tokens=(), max_seconds=5.0)
    trace = read_trace(job / "trace.safetensors")
    found = verify(half_hot, model, trace, made, request, resident_bytes=1 << 20)
    assert found.overall.measured_us > 0
    assert any("datasheet roofline of epyc-9354" in note for note in found.notes)
    # A sheet has no calls that could be timed again.
    assert found.drift is None


def test_a_servers_own_figures_calibrate_it(job: Path, tmp_path: Path) -> None:
    model = tiny_model(job / "model")
    made = datasheet_profile(model, "epyc-9354", "rtx-4090", method="torch", threads=1)
    half_hot = placement(
        {layer: [0, 1, 2, 3] for layer in range(4)},
        layers=range(4),
        experts=8,
        cpu_method="torch",
        kt={"threads": 1, "subpools": 1},
    )
    results = written(tmp_path / "bench.jsonl", sglang_result(max_concurrency=4))
    trace = read_trace(job / "trace.safetensors")
    found = calibrate(
        made, half_hot, model, trace, [read_benchmark_file(results)], None, CalibrateRequest(force=True)
    )
    write_profile(found.profile, tmp_path / "profile.json")
    again = read_profile(tmp_path / "profile.json")
    assert again.cpu == made.cpu
    assert again.calibration == found.calibration
    cold = found.calibration.factors.cold
    ratio = again.cost_model().cold.regimes[0].tile_us / made.cost_model().cold.regimes[0].tile_us
    assert ratio == pytest.approx(cold)


@pytest.mark.parametrize(
    ("options", "said", "advice"),
    [
        (["--cpu", "xeon-8480"], "unknown CPU 'xeon-8480'", "did you mean xeon-8480+"),
        (
            ["--cpu", "epyc-9654", "--cores", 1000],
            "--cores is 1000",
            "give the physical cores of all sockets",
        ),
        (["--cores", 4], "none is named", "--cpu NAME"),
        (["--cpu-method", "torch"], "no --cpu was given", "--cpu-kernel"),
        (["--cpu", "epyc-9654", "--cpu-kernel", "torch"], "--cpu-kernel", "--cpu-method"),
        (["--cpu", "epyc-9654", "--cpu-method", "FP8"], "'FP8'", "RAWINT4"),
        (["--cpu", "epyc-9654", "--points", "points.csv"], "no CPU is timed", "leave it out"),
        (["--cpu", "epyc-9654", "--threads", 97], "--threads is 97", "95"),
    ],
)
def test_what_cannot_be_meant_is_said(
    job: Path, run: Run, tmp_path: Path, options: list[object], said: str, advice: str
) -> None:
    code, _, err = run(
        "profile", "--model", job / "model", "--gpu", "h200", *options, "-o", tmp_path / "profile.json"
    )
    assert code == 2
    assert said in err
    assert advice in err
    assert not (tmp_path / "profile.json").exists()


def test_the_stated_band_becomes_the_uncertainty(tmp_path: Path) -> None:
    made = datasheet_profile(tiny_model(tmp_path), "epyc-9654", "h200")
    assert made.uncertainty.cold == BAND == (0.65, 2.0)
    assert "datasheet" in made.uncertainty.reasons["cold"]
