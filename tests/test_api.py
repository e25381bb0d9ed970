"""The Python API: every command as a function, with the same answer, the same names and the same errors."""

import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import typer
from benchmark_results import sglang_result, written

import placer
from placer.cli import app

if TYPE_CHECKING:
    from reported import ReportedJob

Run = Callable[..., tuple[int, str, str]]
Answer = dict[str, Any]

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "qwen3-30b-a3b"
FUNCTIONS = [name for name in placer.__all__ if not name.endswith("Error")]
COMMANDS = {
    "bench_growth": "bench",
    "bench_instances": "bench",
    "export_check": "export",
    "hardware_list": "hardware",
    "trace": "trace import",
    "verify_kt_log": "verify",
}
"""Commands that are more than one function; the others are called like their function."""
ONLY_COMMANDS = {
    "bench": {"growth": "bench_growth"},
    "trace record": {"texts": "further texts", "api_key_env": "api_key is the key itself"},
    "hardware": {"list": "hardware_list"},
}
"""Options that no function takes, and what there is in their place."""
ONLY_FUNCTIONS = {"trace": {"source"}, "trace_record": {"api_key"}}


def parameters(name: str) -> set[str]:
    return set(inspect.signature(getattr(placer, name)).parameters)


def options(command: str) -> set[str]:
    """Options and arguments of ``command``, as Python names."""
    found: Any = typer.main.get_command(app)
    for word in command.split():
        found = found.commands[word]
    names = set()
    for each in found.params:
        longest = max(each.opts, key=len)
        names.add(longest.lstrip("-").replace("-", "_"))
    return names - {"json", "help", "quiet", "verbose"}


def command_of(function: str) -> str:
    return COMMANDS.get(function, function.replace("_", " "))


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


# --- what there is -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_what_its_command_takes_and_says_what_it_does(name: str) -> None:
    function = getattr(placer, name)
    assert callable(function)
    assert function.__module__ == f"placer.api.{name}"
    assert function.__doc__
    assert parameters(name) - {"progress"} - ONLY_FUNCTIONS.get(name, set()) <= options(command_of(name))


@pytest.mark.parametrize("command", sorted({command_of(name) for name in FUNCTIONS}))
def test_no_option_of_a_command_is_missing(command: str) -> None:
    taken = set().union(*(parameters(name) for name in FUNCTIONS if command_of(name) == command))
    assert options(command) - set(ONLY_COMMANDS.get(command, ())) <= taken


def test_importing_placer_loads_none_of_it() -> None:
    code = "import sys, placer; assert 'inspect' in dir(placer); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if name.split(".")[0] == "placer"} == {
        "placer",
        "placer.errors",
    }


def test_no_module_takes_the_place_of_a_function() -> None:
    import pkgutil

    modules = {each.name for each in pkgutil.iter_modules(placer.__path__)}
    assert not modules & set(FUNCTIONS)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'solved_it'"):
        placer.solved_it  # type: ignore[attr-defined]  # noqa: B018


# --- the same answers --------------------------------------------------------------------------------------


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


# --- the same errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: placer.inspect("/nowhere"), "/nowhere"),
        (lambda: placer.inspect(EXAMPLE, tp=0), "--tp is 0"),
        (lambda: placer.inspect(EXAMPLE, plan=4), "--plan needs to know the GPU"),
        (lambda: placer.inspect(EXAMPLE, plan=4, hbm_budget=-1), "--hbm-budget"),
        (lambda: placer.inspect(3), "model is 3"),
        (lambda: placer.inspect(EXAMPLE, tp="2"), "tp is '2'"),
        (lambda: placer.inspect(EXAMPLE, plan=2, hbm_budget=7.5e9), "hbm_budget is 7500000000.0"),
        (lambda: placer.inspect(EXAMPLE, plan=2, hbm_budget=2**34, kv_dtype=None), "kv_dtype is None"),
        (lambda: placer.bench("instance.npz"), "instances is 'instance.npz'"),
        (lambda: placer.bench(family="balance"), "family 'balance' is not known"),
        (lambda: placer.compare(EXAMPLE, gpus=2, cpu="epyc-9654", gpu="rtx-4090"), "gpus is 2"),
        (lambda: placer.compare(EXAMPLE, gpus=(0,), cpu="epyc-9654", gpu="rtx-4090"), "--gpus is 0"),
        (lambda: placer.evaluate("p", model="m", trace="t", profile="q", mix={"code": "1"}), "mix is"),
        (lambda: placer.explain("p", layer=True), "layer is True"),
        (lambda: placer.solve(EXAMPLE, trace=None, profile="p", progress=True), "progress is True"),
        (lambda: placer.trace_info(EXAMPLE), "is a directory"),
        (placer.trace_synth, "from a preset or by Zipf's law"),
        (lambda: placer.trace_synth("olmoe", seed=-1), "--seed is -1"),
        (
            lambda: placer.profile(EXAMPLE, cpu="epyc-9654", gpu="rtx-4090", quick=True),
            "--quick would change",
        ),
        (lambda: placer.profile(EXAMPLE, cores=4), "none is named"),
        (lambda: placer.compare(EXAMPLE), "compare needs a CPU"),
        (
            lambda: placer.solve(EXAMPLE, trace=None, profile="p", mix={"code": 2.0}),
            "shares of --mix sum to 2",
        ),
        (lambda: placer.export_check("placement.json"), "nothing to check"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_what_to_do(call: Callable[[], object], what: str) -> None:
    with pytest.raises(placer.BadInputError) as caught:
        call()
    assert what in caught.value.what
    assert caught.value.hint
