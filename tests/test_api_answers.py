"""The Python API: every function answers what its command prints, and writes what it writes."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from benchmark_results import sglang_result, written
from fake_server import FakeServer, serving
from kt_export import CONFIG, plan
from kt_log import line
from kt_server_logs import server_log
from placements import placement
from profiles import profile
from small_traces import token_trace
from tiny_model import tiny_model

import placer
from placer.placement import write_placement
from placer.profiler.profile import write_profile
from placer.profiler.timing.machine import this_machine
from placer.profiler.trace.file import write_trace
from placer.solvers.bench.family import Size
from placer.solvers.bench.growth import growth

if TYPE_CHECKING:
    from reported import ReportedJob

Run = Callable[..., tuple[int, str, str]]
Answer = dict[str, Any]

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "qwen3-30b-a3b"


def answered(run: Run, *arguments: object) -> Answer:
    """What a command prints with ``--json``."""
    code, out, err = run(*arguments, "--json")
    assert code == 0, err
    document: Answer = json.loads(out)
    return document


def plain(document: Answer) -> Answer:
    """``document`` as JSON has it."""
    found: Answer = json.loads(json.dumps(document, allow_nan=False))
    return found


def test_inspect(run: Run) -> None:
    found = placer.inspect(EXAMPLE, plan=40, gpu="h100-sxm", host_memory="512GiB")
    asked = ("inspect", "--model", EXAMPLE, "--plan", 40, "--gpu", "h100-sxm", "--host-memory", "512GiB")
    assert plain(found.document()) == answered(run, *asked)
    assert found.fits is True
    assert placer.inspect(found.model, plan=40, hbm_budget=4 * 2**30).fits is False
    assert placer.inspect(str(EXAMPLE)).document() == answered(run, "inspect", "--model", EXAMPLE)


def test_hardware_list(run: Run) -> None:
    assert plain(placer.hardware_list().document()) == answered(run, "hardware", "--list")
    assert "h100-sxm" in placer.hardware_list()["gpus"]


def test_export_writes_what_the_command_writes(run: Run, tmp_path: Path) -> None:
    write_placement(plan(), tmp_path / "placement.json")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    here, there = tmp_path / "here", tmp_path / "there"
    found = placer.export(
        tmp_path / "placement.json", output=here, model_path=tmp_path, kt_weight_path="/weights"
    )
    asked = ("-o", there, "--model-path", tmp_path, "--kt-weight-path", "/weights")
    printed = answered(run, "export", tmp_path / "placement.json", *asked)
    assert json.loads(json.dumps(found.document()).replace(str(here), str(there))) == printed
    assert {path.name for path in here.iterdir()} == {path.name for path in there.iterdir()}
    for path in here.iterdir():
        assert path.read_bytes().replace(bytes(here), bytes(there)) == (there / path.name).read_bytes()


def test_what_the_system_refuses_is_an_error_of_ours(tmp_path: Path) -> None:
    write_placement(plan(), tmp_path / "placement.json")
    with pytest.raises(placer.BadInputError, match="File name too long") as caught:
        placer.export(tmp_path / "placement.json", output=tmp_path / "out", model_path="x" * 300)
    assert caught.value.hint == "choose another path"


def test_export_check(run: Run, tmp_path: Path) -> None:
    path, log = tmp_path / "placement.json", tmp_path / "server.log"
    write_placement(plan(), path)
    log.write_text(server_log(plan(), hot={2: 1}))
    code, out, _ = run("export", path, "--check-log", log, "--json")
    found = placer.export_check(path, check_log=log)
    assert (code, found.same) == (1, False)
    assert plain(found.document()) == json.loads(out)


def test_verify_kt_log(run: Run, job_reported: "ReportedJob", tmp_path: Path) -> None:
    folder, log = job_reported.folder, tmp_path / "server.log"
    shutil.copy(folder / "config.json", tmp_path)
    layers = job_reported.model.moe_layers
    log.write_text("\n".join(line(layer=layer, step=step) for step in range(1, 9) for layer in layers) + "\n")
    given = {"model": tmp_path, "trace": folder / "trace.safetensors", "profile": folder / "profile.json"}
    asked = [part for name, path in given.items() for part in (f"--{name}", path)]
    printed = answered(run, "verify", job_reported.placement, *asked, "--kt-log", log)
    assert plain(placer.verify_kt_log(job_reported.placement, log, **given).document()) == printed


def test_explain(run: Run, job_reported: "ReportedJob") -> None:
    found = placer.explain(job_reported.document, layer=2)
    assert plain(found.document()) == answered(run, "explain", job_reported.placement, "--layer", 2)


def test_evaluate(run: Run, job_reported: "ReportedJob", tmp_path: Path) -> None:
    folder = job_reported.folder
    shutil.copy(folder / "config.json", tmp_path)
    shares = {"chat": 0.25, "<i>code</i>": 0.75}
    given = {"model": tmp_path, "trace": folder / "trace.safetensors", "profile": folder / "profile.json"}
    read = {"model": job_reported.model, "trace": job_reported.trace, "profile": job_reported.profile}
    printed = answered(
        run,
        "evaluate",
        job_reported.placement,
        *(part for name, path in given.items() for part in (f"--{name}", path)),
        "--mix",
        ",".join(f"{name}={share}" for name, share in shares.items()),
    )
    assert plain(placer.evaluate(job_reported.placement, mix=shares, **given).document()) == printed
    assert plain(placer.evaluate(job_reported.document, mix=shares, **read).document()) == printed


def test_trace_info(run: Run, job_reported: "ReportedJob") -> None:
    path = job_reported.folder / "trace.safetensors"
    printed = answered(run, "trace", "info", path)
    assert plain(placer.trace_info(path).document()) == printed
    assert plain(placer.trace_info(placer.trace(path)).document()) == printed


def test_trace_synth_and_import_write_what_the_commands_write(run: Run, tmp_path: Path) -> None:
    made = placer.trace_synth(zipf=1.0, model=EXAMPLE, requests=4, output=tmp_path / "here.safetensors")
    arguments = ("--zipf", 1.0, "--model", EXAMPLE, "--requests", 4, "-o", tmp_path / "there.safetensors")
    assert run("trace", "synth", *arguments)[0] == 0
    assert (tmp_path / "here.safetensors").read_bytes() == (tmp_path / "there.safetensors").read_bytes()
    told: list[str] = []
    imported = placer.trace_import(
        [tmp_path / "here.safetensors", tmp_path / "there.safetensors"],
        output=tmp_path / "joined.safetensors",
        progress=lambda text, _share: told.append(text),
    )
    assert imported.tokens == made.tokens
    assert told == ["shard 2 of 2"]
    assert placer.trace(tmp_path / "joined.safetensors").tokens == made.tokens


def test_nothing_is_written_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    placer.trace_synth("qwen3-30b-a3b", requests=4)
    assert list(tmp_path.iterdir()) == []


def test_bench(run: Run, tmp_path: Path) -> None:
    (path,) = placer.bench_instances(write=tmp_path, family="balanced", size="4x16x8")
    (known,) = answered(run, "bench", path, "--time-limit", 5.0)["rows"]
    found = placer.bench([path], time_limit=5.0, csv=tmp_path / "rows.csv")
    (row,) = found.document()["rows"]
    for field in ("objective_us", "bound_us", "sha256"):
        assert row[field] == known[field]
    assert (tmp_path / "rows.csv").read_text().count("\n") == 2


def test_calibrate(run: Run, job_reported: "ReportedJob", tmp_path: Path) -> None:
    folder = job_reported.folder
    shutil.copy(folder / "config.json", tmp_path)
    benchmark = written(tmp_path / "benchmark.jsonl", sglang_result())
    given = {"placement": job_reported.placement, "model": tmp_path, "trace": folder / "trace.safetensors"}
    printed = answered(
        run,
        "calibrate",
        *("--profile", folder / "profile.json", "--benchmark", benchmark, "--force"),
        *(part for name, path in given.items() for part in (f"--{name}", path)),
        *("-o", tmp_path / "there.json"),
    )
    found = placer.calibrate(
        folder / "profile.json", benchmark=[benchmark], force=True, output=tmp_path / "here.json", **given
    )
    created = {"created": printed["created"]}
    assert plain(found.document()) | created == printed
    here, there = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("here", "there"))
    here["calibration"] |= created
    assert here == there


def test_preflight(run: Run, job_reported: "ReportedJob") -> None:
    found = placer.preflight(job_reported.placement, python=sys.executable)
    code, out, _ = run("preflight", job_reported.placement, "--python", sys.executable, "--json")
    assert code == found.exit_code

    def verdicts(document: Answer) -> list[tuple[str, str]]:
        return [(check["name"], check["verdict"]) for check in document["checks"]]

    # Free memory and load change from one moment to the next.
    assert verdicts(found.document()) == verdicts(json.loads(out))


def test_report(run: Run, job_reported: "ReportedJob", tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    drawn = placer.report(job_reported.placement, profile=job_reported.profile)
    printed = answered(
        run,
        "report",
        job_reported.placement,
        *("--profile", job_reported.folder / "profile.json", "-o", tmp_path / "report.html"),
    )
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == drawn.html
    assert plain(drawn.document()) == {**printed, "report": None}


def test_profile_solve_and_compare(run: Run, tmp_path: Path) -> None:
    """From datasheets: nothing is timed, so that both ways give the same figures."""
    sheets = {"cpu": "epyc-9654", "gpu": "rtx-4090"}
    named = [part for name, value in sheets.items() for part in (f"--{name}", value)]
    printed = answered(run, "profile", "--model", EXAMPLE, *named, "-o", tmp_path / "there.json")
    made = placer.profile(EXAMPLE, **sheets, output=tmp_path / "here.json")
    assert plain(made.document()) | {"created": printed["created"]} == printed
    assert json.loads((tmp_path / "here.json").read_text())["model"]["name"] == made.model.name

    traffic = {"prompt_tokens": 64, "output_tokens": 16, "concurrency": 2}
    asked = [part for name, value in traffic.items() for part in (f"--{name.replace('_', '-')}", value)]
    given = ("--model", EXAMPLE, "--profile", tmp_path / "there.json", "--trace", "none", *asked)
    printed = answered(
        run, "solve", *given, "--host-memory", "64GiB", "-o", tmp_path / "there-placement.json"
    )
    found = placer.solve(
        EXAMPLE,
        trace=None,
        profile=made,
        host_memory=64 * 2**30,
        output=tmp_path / "placement.json",
        **traffic,
    )
    changing = {"created": printed["created"], "solver": printed["solver"]}
    assert found.document() | {**changing, "profile_sha256": printed["profile_sha256"]} == printed
    assert json.loads((tmp_path / "placement.json").read_text()) == found.document()

    printed = answered(run, "compare", *given, "--gpus", "1")
    compared = placer.compare(EXAMPLE, gpus=[1], profile=made, **traffic)
    assert plain(compared.document()) == printed
    assert compared.keeps_targets


def test_profile_merge(run: Run, job_reported: "ReportedJob", tmp_path: Path) -> None:
    path = job_reported.folder / "profile.json"
    printed = answered(run, "profile", "merge", path, path, "-o", tmp_path / "there.json")
    merged = placer.profile_merge(path, job_reported.profile, output=tmp_path / "here.json")
    assert plain(merged.document()) | {"created": printed["created"]} == printed


def test_trace_compare(run: Run, job_reported: "ReportedJob", tmp_path: Path) -> None:
    folder = job_reported.folder
    shutil.copy(folder / "config.json", tmp_path)
    given = {"placement": job_reported.placement, "model": tmp_path, "profile": folder / "profile.json"}
    trace = folder / "trace.safetensors"
    options = [part for name, path in given.items() for part in (f"--{name}", path)]
    code, out, _ = run("trace", "compare", trace, trace, *options, "--time-limit", 0.1, "--json")
    assert code in (0, 1)
    printed = json.loads(out)
    found = plain(placer.trace_compare(trace, job_reported.trace, time_limit=0.1, **given).document())
    assert set(found) == set(printed)
    # How far a solve comes in a tenth of a second is not the same twice.
    for field in ("plan_on_a", "plan_on_b", "drift_ms", "hot_total", "settings", "worth", "notes"):
        assert found[field] == printed[field]


def test_numbers_of_numpy_are_numbers() -> None:
    found = placer.inspect(EXAMPLE, tp=np.int64(2), plan=np.int32(40), hbm_budget=2**35)
    assert plain(found.document()) == placer.inspect(EXAMPLE, tp=2, plan=40, hbm_budget=2**35).document()


def test_verify(run: Run, tmp_path: Path) -> None:
    """torch's kernel runs on this machine, against a profile that is made up and said to be of it."""
    model = tiny_model(tmp_path)
    made = profile(cpu=this_machine().cpu)
    ids = np.argsort(np.random.default_rng(0).random((400, 4, 8)), axis=2)[:, :, :2]
    hot = {layer: [0, 1, 2, 3] for layer in range(4)}
    plan_of_tiny = placement(hot, layers=range(4), experts=8, cpu_method="torch")
    trace = token_trace(ids, experts=8, request=np.repeat(np.arange(20), 20).tolist())
    write_profile(made, tmp_path / "profile.json")
    write_trace(trace, tmp_path / "trace.safetensors")
    write_placement(plan_of_tiny, tmp_path / "placement.json")
    asked = ("--layer-steps", 8, "--running", 4, "--prefill", "none", "--max-seconds", 5)
    printed = answered(
        run,
        *("verify", tmp_path / "placement.json", "--model", tmp_path, *asked),
        *("--trace", tmp_path / "trace.safetensors", "--profile", tmp_path / "profile.json"),
    )
    found = placer.verify(
        plan_of_tiny,
        model=model,
        trace=trace,
        profile=made,
        layer_steps=8,
        running=[4],
        prefill=[],
        max_seconds=5,
    )
    document = plain(found.document())
    assert document["predicted_us"] == printed["predicted_us"]
    for field in ("steps", "layers", "layer_steps", "hot_side"):
        assert document[field] == printed[field]
    assert set(document) == set(printed)
    (here,), (there,) = document["by_step"], printed["by_step"]
    assert (here["kind"], here["tokens"]) == (there["kind"], there["tokens"]) == ("decode", 4)


def test_trace_record_writes_what_the_command_writes(run: Run, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt_token_ids": [1, 2]}\n{"prompt_token_ids": [5, 3]}\n')
    tiny_model(tmp_path)
    given = {"model": tmp_path, "output_tokens": 3}
    with serving(FakeServer("vLLM")) as server:
        made = placer.trace_record(
            [f"code={prompts}"], server=server.url, output=tmp_path / "here.safetensors", **given
        )
        asked = (
            "--text",
            f"code={prompts}",
            "--server",
            server.url,
            "--model",
            tmp_path,
            "--output-tokens",
            3,
        )
        assert run("trace", "record", *asked, "-o", tmp_path / "there.safetensors")[0] == 0
    here, there = (placer.trace(tmp_path / f"{name}.safetensors") for name in ("here", "there"))
    # Two prompts of two tokens and three answered ones; the last has no routing yet.
    assert here.tokens == there.tokens == made.trace().tokens == 2 * 4
    assert (here.topk_ids == there.topk_ids).all()
    assert placer.trace_info(here).document() == placer.trace_info(there).document()


def test_trace_bench(run: Run) -> None:
    printed = answered(run, "trace", "bench", "--ids", 200_000)
    found = plain(placer.trace_bench(ids=200_000).document())
    (here,), (there,) = found["rows"], printed["rows"]
    # 24 layers of top-4.
    assert here["tokens"] == there["tokens"] == 200_000 // 96
    assert here["ids"] == there["ids"]
    assert set(here) == set(there)


def test_hardware(run: Run, job_reported: "ReportedJob") -> None:
    path = job_reported.folder / "profile.json"
    printed = answered(run, "hardware", "--profile", path)
    found = plain(placer.hardware(profile=job_reported.profile).document())
    # Bandwidth and arithmetic are measured, and memory is free, anew each time.
    measured = ("memory_bandwidth_bytes_per_s", "dense_flops", "quiet_warning", "cpu")
    assert {name: value for name, value in found.items() if name not in measured} == {
        name: value for name, value in printed.items() if name not in measured
    }
    for name in measured[:2]:
        assert found[name].keys() == printed[name].keys()
    assert found["cpu"]["cpu"] == printed["cpu"]["cpu"] == this_machine().cpu


def test_bench_growth(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two small sizes in the place of the sweep, which takes minutes."""
    sizes = (Size(4, 16, 8), Size(8, 16, 8))
    monkeypatch.setitem(growth.__kwdefaults__, "sizes", sizes)
    (there,) = answered(run, "bench", "--growth", "--family", "balanced", "--gap", 0.05)["growth"]
    (here,) = plain(placer.bench_growth(family=["balanced"], gap=0.05).document())["growth"]
    assert [(each["layers"], each["experts"], each["steps"]) for each in here["points"]] == [
        (4, 16, 8),
        (8, 16, 8),
    ]
    for point, printed in zip(here["points"], there["points"], strict=True):
        assert {**point, "seconds": 0, "cpu_seconds": 0} == {**printed, "seconds": 0, "cpu_seconds": 0}
    assert {**here, "points": []} == {**there, "points": []}
