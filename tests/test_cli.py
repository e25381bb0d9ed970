"""The command line on a small model: exit codes, one clear line for bad input, no partial file."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import TINY_CONFIG

from placer.cli import main
from placer.cli.completion import cpu_methods, datasheet_methods

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny model, a trace, and a profile timed on this machine with torch's kernel."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(TINY_CONFIG))
    random = np.random.default_rng(0)
    # Squared keys skew the choice towards low ids; 40 requests of 50 tokens.
    keys = random.random((2000, 4, 8)) * (1 + np.arange(8))
    topk = np.argsort(keys, axis=2)[:, :, :2].astype(np.uint8)
    np.savez(folder / "ids.npz", topk=topk, offsets=np.arange(0, 2001, 50))
    with pytest.MonkeyPatch.context() as patch:
        for arguments in (
            [
                "trace",
                "import",
                folder / "ids.npz",
                "--model",
                folder / "model",
                "-o",
                folder / "trace.safetensors",
            ],
            [
                "profile",
                "--model",
                folder / "model",
                "--cpu-kernel",
                "torch",
                "--gpu",
                "rtx-4090",
                "--threads",
                1,
                "--max-seconds",
                20,
                "-o",
                folder / "profile.json",
            ],
        ):
            patch.setattr("sys.argv", ["placer", *map(str, arguments)])
            with pytest.raises(SystemExit) as caught:
                main()
            assert caught.value.code == 0
    return folder


def judged_on(job: Path) -> list[object]:
    """The model, trace and profile of ``job``, as `evaluate` takes them."""
    return [
        "--model",
        job / "model",
        "--trace",
        job / "trace.safetensors",
        "--profile",
        job / "profile.json",
    ]


def solve_arguments(job: Path, output: Path, **changes: object) -> list[object]:
    options: dict[str, Any] = {
        "--model": job / "model",
        "--trace": job / "trace.safetensors",
        "--profile": job / "profile.json",
        "--hbm-budget": "4GiB",
        "--prompt-tokens": 64,
        "--output-tokens": 32,
        "--concurrency": 4,
        "-o": output,
        **{("--" + name.replace("_", "-")): value for name, value in changes.items()},
    }
    return ["solve", *(part for option in options.items() for part in option)]


def assert_one_error(err: str) -> None:
    """One error and one advice, wrapped to 100 columns with the lines that go on indented."""
    lines = err.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == lines[:1]
    assert lines[0].startswith("error: ")
    assert sum(line.startswith("  do: ") for line in lines) == 1
    # Only a word that cannot be broken is longer.
    assert all(len(line) <= 100 or " " not in line.strip() for line in lines)


def test_the_whole_job(job: Path, run: Run, tmp_path: Path) -> None:
    code, _, err = run(*solve_arguments(job, tmp_path / "placement.json"))
    assert code == 0
    assert "experts hot" in err
    placement = json.loads((tmp_path / "placement.json").read_text())
    assert placement["schema"] == "placer.placement/1"
    assert sum(placement["hbm"]["ledger"].values()) == 4 * 2**30
    code, out, _ = run(
        "evaluate",
        tmp_path / "placement.json",
        *judged_on(job),
        "--json",
    )
    assert code == 0
    document = json.loads(out)
    assert set(document["step_us"]) == {
        "plan",
        "frequency",
        "frequency_per_layer",
        "uniform",
        "front_loading",
        "random",
    }
    assert document["coverage"]["uniform_null"] == pytest.approx(placement["hot_total"] / 32)
    # A plan timed with torch's kernel is not exported for a runtime that runs another.
    code, _, err = run("export", tmp_path / "placement.json", "-o", tmp_path / "out")
    assert code == 2
    assert "torch" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("preset", "verdict"), [("mixtral", "flat"), ("domain-bound", "domain-bound")])
def test_a_synthetic_trace_is_judged_in_a_hundred_columns(
    printed: Run, tmp_path: Path, preset: str, verdict: str
) -> None:
    trace = tmp_path / "trace.safetensors"
    code, _, err = printed(
        "trace",
        "synth",
        "--preset",
        preset,
        "--requests",
        40,
        "--prompt-tokens",
        10,
        "--output-tokens",
        150,
        "-o",
        trace,
    )
    assert code == 0
    assert "synthetic: preset" in err
    code, _, err = printed("trace", "info", trace)
    assert code == 0
    assert err.startswith(f"{verdict}: the hottest half of the experts serves")
    assert all(len(line) <= 100 for line in err.splitlines())
    code, out, _ = printed("trace", "info", trace, "--json")
    document = json.loads(out)
    assert document["verdict"] == verdict
    assert document["requests"] == 40


def test_an_evaluation_on_counts_says_what_was_assumed(job: Path, run: Run, tmp_path: Path) -> None:
    assert run(*solve_arguments(job, tmp_path / "placement.json"))[0] == 0
    counts = np.random.default_rng(0).multinomial(200, np.full(8, 1 / 8), size=(30, 4))
    np.savez(tmp_path / "counts.npz", counts=counts, tokens=np.full(30, 100), top_k=2)
    trace = tmp_path / "counts.safetensors"
    assert run("trace", "import", tmp_path / "counts.npz", "--model", job / "model", "-o", trace)[0] == 0
    options = ("--model", job / "model", "--trace", trace, "--profile", job / "profile.json")
    code, _, err = run("evaluate", tmp_path / "placement.json", *options)
    assert code == 0
    assert "note: decode steps were sampled from counts" in err


def test_drift_between_traces_tells_cron_what_to_do(
    job: Path, run: Run, printed: Run, tmp_path: Path
) -> None:
    assert run(*solve_arguments(job, tmp_path / "all.json"))[0] == 0
    ledger = json.loads((tmp_path / "all.json").read_text())["hbm"]["ledger"]
    # All 32 experts fit there; leave room for about eight.
    few = 4 * 2**30 - ledger["unused"] - ledger["hot_experts"] * 3 // 4
    assert run(*solve_arguments(job, tmp_path / "placement.json", hbm_budget=f"{few / 2**30:.7f}GiB"))[0] == 0
    random = np.random.default_rng(1)
    # The other way round: high ids are chosen most.
    keys = random.random((2000, 4, 8)) * (8 - np.arange(8)) ** 2
    np.savez(
        tmp_path / "new.npz",
        topk=np.argsort(keys, axis=2)[:, :, :2].astype(np.uint8),
        offsets=np.arange(0, 2001, 50),
    )
    new = tmp_path / "new.safetensors"
    assert run("trace", "import", tmp_path / "new.npz", "--model", job / "model", "-o", new)[0] == 0
    options = (
        "--placement",
        tmp_path / "placement.json",
        "--model",
        job / "model",
        "--profile",
        job / "profile.json",
    )
    old = job / "trace.safetensors"
    code, out, _ = run("trace", "compare", old, old, *options, "--json")
    assert (code, json.loads(out)["advice"]) == (0, "keep")
    code, _, err = printed("trace", "compare", old, new, *options)
    assert code == 1
    assert err.startswith("re-solve on B: solving on B saves")
    assert [line for line in err.splitlines() if len(line) > 100] == []
    code, _, err = run("trace", "compare", old, new, *options, "--worth", "5")
    assert code == 2
    assert "--worth" in err


def test_the_same_command_gives_the_same_placement(job: Path, run: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert run(*solve_arguments(job, tmp_path / name))[0] == 0
    one, two = (json.loads((tmp_path / name).read_text()) for name in ("one", "two"))
    for document in (one, two):
        del document["created"], document["solver"]["seconds"]
    assert one == two


def test_json_goes_to_stdout_alone(job: Path, run: Run, tmp_path: Path) -> None:
    code, out, _ = run(*solve_arguments(job, tmp_path / "placement.json"), "--json")
    assert code == 0
    assert json.loads(out) == json.loads((tmp_path / "placement.json").read_text())
    code, out, _ = run("inspect", "--model", job / "model", "--json")
    assert code == 0
    assert json.loads(out)["experts"] == 8


def test_without_a_trace(job: Path, run: Run, tmp_path: Path) -> None:
    code, _, err = run(*solve_arguments(job, tmp_path / "placement.json", trace="none"))
    assert code == 0
    assert "routing is assumed uniform" in err
    placement = json.loads((tmp_path / "placement.json").read_text())
    assert placement["solver"]["gap"] is None
    assert placement["null_reasons"]["solver.gap"]


def test_nothing_fits(job: Path, run: Run, tmp_path: Path) -> None:
    code, _, err = run(*solve_arguments(job, tmp_path / "placement.json", hbm_budget="1GiB"))
    assert code == 3
    assert "breaks at line" in err
    assert not (tmp_path / "placement.json").exists()


def test_host_memory_that_is_too_small(job: Path, run: Run, tmp_path: Path) -> None:
    output = tmp_path / "placement.json"
    code, _, err = run(*solve_arguments(job, output, host_memory="1MiB", max_hot_per_layer=7))
    assert code == 3
    assert "host memory" in err
    # Where every expert may be hot the server needs no CPU experts, and a plan says that it must be started so.
    code, _, err = run(*solve_arguments(job, output, host_memory="1MiB"))
    assert code == 0
    assert json.loads(output.read_text())["hot_total"] == 32
    assert "start the server without CPU experts" in " ".join(err.split())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hbm_budget": "-4GiB"}, "not a positive size"),
        ({"hbm_budget": "4"}, "has no unit"),
        ({"hbm_budget": "900GiB"}, "more than the"),
        ({"hbm_budget": "120%"}, "more than the whole"),
        ({"model": "nowhere"}, "nowhere"),
        ({"trace": "nowhere"}, "nowhere"),
        ({"profile": "nowhere"}, "nowhere"),
        ({"model": "m" * 300}, "too long"),
        ({"trace": "t" * 300}, "too long"),
        ({"profile": "p" * 300}, "too long"),
        ({"max_running": "many"}, "--max-running"),
        ({"max_running": "0"}, "--max-running"),
        ({"min_kv_tokens": -5}, "--min-kv-tokens"),
        ({"chunk": "small"}, "--chunk"),
        ({"chunk": 0}, "--chunk"),
        ({"min_hot": 9}, "--min-hot"),
        ({"gpu_free": "500GiB"}, "--gpu-free"),
        ({"kv_dtype": "fp4"}, "--kv-dtype"),
        ({"solver": "glpk"}, "--solver"),
        ({"gap": 7}, "--gap"),
        ({"gap": "nan"}, "--gap"),
        ({"time_limit": "nan"}, "--time-limit"),
        ({"output_tokens": 0}, "--output-tokens"),
        ({"output_tokens": 100_000}, "context"),
        ({"slo_tpot": -1}, "--slo-tpot"),
        ({"slo_ttft": "nan"}, "--slo-ttft"),
        ({"tp": 2}, "made for tp 1, not 2"),
        ({"tp": 0}, "--tp"),
    ],
)
def test_bad_input_gives_one_clear_line(
    job: Path, printed: Run, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    code, _, err = printed(*solve_arguments(job, tmp_path / "placement.json", **changes))
    assert code == 2
    assert message in " ".join(err.split())
    assert_one_error(err)
    assert not (tmp_path / "placement.json").exists()


def test_an_output_that_cannot_be_written(job: Path, run: Run, tmp_path: Path) -> None:
    code, _, err = run(*solve_arguments(job, tmp_path / "nowhere" / "placement.json"))
    assert code == 2
    assert "cannot write" in err


def test_an_output_never_replaces_an_input(job: Path, run: Run) -> None:
    for name in ("profile.json", "trace.safetensors"):
        before = (job / name).read_bytes()
        code, _, err = run(*solve_arguments(job, job / name))
        assert code == 2
        assert "input of this command" in err
        assert (job / name).read_bytes() == before


def test_a_trace_of_another_model(job: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({**TINY_CONFIG, "num_hidden_layers": 6}))
    code, _, err = run(*solve_arguments(job, tmp_path / "placement.json", model=tmp_path / "other"))
    assert code == 2
    assert "layers" in err


def test_a_profile_of_other_shapes(job: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({**TINY_CONFIG, "moe_intermediate_size": 256}))
    code, _, err = run(*solve_arguments(job, tmp_path / "placement.json", model=tmp_path / "other"))
    assert code == 2
    assert "expert width" in err


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"fixed_us": ', '"fixed_us": NaN, "was": ', 1),
        lambda text: text.replace('"tile": ', '"tile": 0, "was": ', 1),
        lambda text: text.replace("placer.profile/1", "placer.profile/9"),
        lambda text: text.replace('"cpu"', '"gone"', 1),
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "\x00",
    ],
)
def test_a_damaged_profile(job: Path, run: Run, tmp_path: Path, damage: Callable[[str], str]) -> None:
    (tmp_path / "profile.json").write_text(damage((job / "profile.json").read_text()))
    code, _, err = run(*solve_arguments(job, tmp_path / "placement.json", profile=tmp_path / "profile.json"))
    assert code == 2
    assert "profile" in err


def test_an_unknown_gpu(job: Path, run: Run, tmp_path: Path) -> None:
    code, _, err = run(
        "profile", "--model", job / "model", "--gpu", "voodoo-2", "-o", tmp_path / "profile.json"
    )
    assert code == 2
    assert "rtx-4090" in err


def test_a_missing_gpu(job: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, err = run("profile", "--model", job / "model", "-o", tmp_path / "profile.json")
    assert code == 4
    assert "--gpu" in err


def test_inspect_says_whether_so_many_hot_experts_fit(job: Path, run: Run) -> None:
    options = ["inspect", "--model", job / "model", "--gpu", "rtx-4090", "--kv-tokens", 4096]
    code, out, _ = run(*options, "--plan", 8, "--json")
    assert code == 0
    document = json.loads(out)
    plan = document["plan"]
    assert plan["fits"]
    assert plan["hot_experts"] == 32
    assert plan["largest_hot_per_layer"] == 8
    assert plan["hbm"]["device_bytes"] == plan["hbm"]["budget_bytes_per_gpu"]
    # What inspect says without --plan stays as it is.
    assert set(document) - {"plan"} == set(json.loads(run("inspect", "--model", job / "model", "--json")[1]))
    code, _, err = run(*options, "--plan", 8, "--hbm-budget", "2GiB")
    assert code == 3
    assert err.startswith("does not fit: 8 of 8 experts hot per layer")
    assert "--hbm-budget of at least" in err


def test_inspect_takes_what_a_server_logged_as_free(job: Path, run: Run) -> None:
    options = ["inspect", "--model", job / "model", "--gpu", "rtx-4090", "--plan", 1, "--json"]
    lines = json.loads(run(*options, "--gpu-free", "20.5GiB")[1])["plan"]["hbm"]["ledger"]
    assert lines["free_memory_loss"] == 3 * 2**30
    code, _, err = run(*options, "--gpu-free", "24GiB")
    assert code == 2
    assert "--gpu-free" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plan", 1], "--gpu NAME"),
        (["--plan", 9, "--gpu", "h100-sxm"], "8 experts per layer"),
        (["--plan", 1, "--gpu", "h100-sxm", "--hbm-budget", "100GiB"], "more than the"),
        (["--plan", 1, "--hbm-budget", "75%"], "not known here"),
        (["--plan", 1, "--gpu", "h100-sxm", "--tp", 2], "FP8 blocks"),
        (["--tp", 2], "possible: tp 1"),
        (["--tp", 3], "possible: tp 1"),
        (["--plan", 1, "--gpu", "h100-sxm", "--ep", 2], "--ep 2 does not divide"),
        (["--plan", 1, "--gpu", "h100-sxm", "--kv-dtype", "fp4"], "--kv-dtype"),
        (["--plan", 1, "--gpu", "h100-sxm", "--cpu-method", "GGUF"], "--cpu-method"),
        (["--plan", 1, "--gpu", "h100-sxm", "--speculative"], "no MTP layer"),
        (["--plan", -1, "--gpu", "h100-sxm"], "--plan"),
        (["--plan", 1, "--gpu", "gtx-480"], "unknown GPU"),
    ],
)
def test_an_inspection_that_is_not_possible(
    job: Path, run: Run, arguments: list[object], message: str
) -> None:
    code, _, err = run("inspect", "--model", job / "model", *arguments)
    assert code == 2
    assert message in err


def test_solve_takes_memory_settings(job: Path, run: Run, tmp_path: Path) -> None:
    output = tmp_path / "placement.json"
    code, _, _ = run(*solve_arguments(job, output, hbm_budget="6GiB", gpu_free="22GiB", chunk=128, min_hot=2))
    assert code == 0
    placement = json.loads(output.read_text())
    assert placement["hbm"]["ledger"]["free_memory_loss"] == int(23.5 * 2**30) - 22 * 2**30
    assert placement["hbm"]["ledger"]["mtp"] == 0
    assert placement["kv"]["chunked_prefill_size"] == 128
    code, _, err = run(*solve_arguments(job, tmp_path / "none", hbm_budget="3.2GiB", min_kv_tokens=10**7))
    assert code == 3
    assert "--min-kv-tokens of at most" in err
    assert not (tmp_path / "none").exists()


def test_unknown_flags_and_commands_are_usage_errors(run: Run) -> None:
    assert run("solve", "--bogus")[0] == 2
    assert run("nonsense")[0] == 2


def test_an_interrupted_bench_prints_and_writes_what_is_finished(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from placer.solvers.bench import bench as bench_module

    solve, solved = bench_module.run_solver, []

    def second_is_interrupted(*arguments: Any) -> Any:
        if solved:
            raise KeyboardInterrupt
        solved.append(arguments)
        return solve(*arguments)

    monkeypatch.setattr(bench_module, "run_solver", second_is_interrupted)
    csv = tmp_path / "rows.csv"
    code, _, err = run("bench", "--family", "cpu-bound,jumps", "--size", "3x16x2", "--csv", csv)
    assert code == 130
    assert "interrupted after 1 of 2 instances" in err
    header, *rows = csv.read_text().splitlines()
    assert len(rows) == 1
    # A sort is proven to the rivals' own tolerance, and said to be optimal.
    assert dict(zip(header.split(","), rows[0].split(","), strict=True))["status"] == "optimal"


def test_an_interrupt_exits_130(job: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("placer.api.solve.plan", interrupted)
    code, _, err = run(*solve_arguments(job, tmp_path / "placement.json"))
    assert code == 130
    assert "no result was written" in err
    assert not (tmp_path / "placement.json").exists()


def test_cpus_and_gpus_can_be_listed(run: Run) -> None:
    code, out, err = run("hardware", "--list")
    assert (code, out) == (0, "")
    first_words = [line.split()[0] for line in err.splitlines() if line.split()]
    assert {"h100-sxm", "xeon-8480+", "epyc-9654"} <= set(first_words)
    code, out, _ = run("hardware", "--list", "--json")
    document = json.loads(out)
    assert "h100-sxm" in document["gpus"]
    sheets = {sheet["name"]: sheet for sheet in document["cpu_sheets"]}
    assert sheets["epyc-9654"]["bandwidth_bytes_per_s"] == 460.8e9
    assert all(sheet["source"] for sheet in (*document["cpu_sheets"], *document["gpu_sheets"]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (("gpu", "rates", "bf16_flops"), 0),
        (("gpu", "rates", "layer_call_us"), -500),
        (("gpu", "rates", "transfer_token_us"), -1000),
        (("cpu", "threads"), 10_000_000),
        (("cpu", "cost", "regimes", 0, "expert_us"), 1e300),
        (("cpu", "cost", "regimes", 0, "heaviest_factor"), 1e30),
    ],
)
def test_a_profile_with_impossible_figures(
    job: Path, run: Run, tmp_path: Path, field: tuple[Any, ...], value: float
) -> None:
    document = json.loads((job / "profile.json").read_text())
    part = document
    for key in field[:-1]:
        part = part[key]
    part[field[-1]] = value
    (tmp_path / "profile.json").write_text(json.dumps(document))
    code, _, err = run(*solve_arguments(job, tmp_path / "placement.json", profile=tmp_path / "profile.json"))
    assert code == 2
    assert "profile" in err


def test_a_doubtful_fit_is_said_beside_the_answer(job: Path, run: Run, tmp_path: Path) -> None:
    document = json.loads((job / "profile.json").read_text())
    document["cpu"]["report"]["overall"]["mape"] = 0.25
    (tmp_path / "profile.json").write_text(json.dumps(document))
    code, _, err = run(*solve_arguments(job, tmp_path / "placement.json", profile=tmp_path / "profile.json"))
    assert code == 0
    assert "off by 25%" in err


def test_prompts_that_are_left_out_are_said_to_be(job: Path, run: Run, tmp_path: Path) -> None:
    code, _, err = run(*solve_arguments(job, tmp_path / "placement.json", prefill_from="none"))
    assert code == 0
    assert "counts them as free" in err
    assert "TTFT p95 unknown" in err


def test_an_unknown_gpu_kernel_is_a_usage_error(job: Path, run: Run, tmp_path: Path) -> None:
    code, _, err = run(
        "profile", "--model", job / "model", "--gpu-kernel", "zz", "-o", tmp_path / "profile.json"
    )
    assert code == 2
    assert "unknown kernel" in err


def test_more_clients_than_a_closed_loop_can_play_are_refused(job: Path, run: Run, tmp_path: Path) -> None:
    code, _, err = run(*solve_arguments(job, tmp_path / "placement.json", concurrency=100_000_000))
    assert code == 2
    assert "--concurrency" in err


def test_import_reads_folders_and_names_what_is_wrong(run: Run, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    for number in range(3):
        rows = "".join(f"0,{expert},{expert + number + 1}\n" for expert in range(4))
        (shards / f"{number}.csv").write_text("layer,expert,count\n" + rows)
    (tmp_path / "config.json").write_text(json.dumps({**TINY_CONFIG, "num_hidden_layers": 1}))
    spec = ["--model", tmp_path, "-o", tmp_path / "t"]
    code, _, err = run("trace", "import", shards, *spec)
    assert code == 0
    assert "3 files" in err
    (shards / "broken").write_text("layer,expert,count\n0,0,x\n")
    code, _, err = run("trace", "import", shards, *spec)
    assert code == 2
    assert "broken, line 2" in err
    assert "--broken skip" in err
    code, _, err = run("trace", "import", shards, *spec, "--broken", "skip")
    assert code == 0
    assert "skipped 1 shard that could not be used" in err
    code, _, err = run("trace", "import", tmp_path / "none", *spec)
    assert (code, "no such file or folder" in err) == (2, True)
    code, _, err = run("trace", "import", shards, "--phase", "both")
    assert (code, "--phase" in err) == (2, True)


def test_import_help_names_every_format_and_how_it_is_told(run: Run) -> None:
    from placer.profiler.trace.formats import FORMATS

    code, out, _ = run("trace", "import", "--help")
    assert code == 0
    words = " ".join(out.split())
    for name, one in FORMATS.items():
        assert f"{name}: {one.holds} ({one.told_by})" in words


@pytest.mark.parametrize("arguments", [[], ["trace"], ["profile"]])
def test_commands_are_described_whole(run: Run, arguments: list[object]) -> None:
    _, out, _ = run(*arguments, "--help")
    listed = " ".join(out.partition("Commands:")[2].split())
    assert listed
    assert "..." not in listed
    if not arguments:
        assert "profile Time this machine's kernels at the model's shapes and fit" in listed
        assert "bench Solve instances and print objective, bound and gap; with rivals, who is ahead" in listed


@pytest.mark.parametrize("command", ["inspect", "compare", "profile"])
def test_help_names_every_cpu_method_that_is_taken(run: Run, command: str) -> None:
    _, out, _ = run(command, "--help")
    text = " ".join(out.partition("--cpu-method")[2].partition(" --")[0].split())
    taken = cpu_methods() if command == "inspect" else datasheet_methods()
    assert set(re.findall(r"[A-Z][A-Z0-9-]{4,}|torch", text)) == set(taken)


@pytest.mark.parametrize("arguments", [[], ["trace"]])
def test_a_bare_command_shows_its_help(run: Run, arguments: list[object]) -> None:
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("Usage: placer")
    code, out, err = run(*arguments, "--help")
    assert code == 0
    assert out.startswith("Usage: placer")
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "--model", "m", "--trace", "", "--profile", "p"], "--trace is empty"),
        (["solve", "--model", "m", "--trace=", "--profile", "p"], "--trace is empty"),
        (["demo", "-o", ""], "-o is empty"),
        (["trace", "info", ""], "an argument is empty"),
        (["export", "", "-o", "out"], "an argument is empty"),
        (["trace", "info", "."], ". is a directory, where a trace is expected"),
        (["trace", "import", "."], ".: no file to import"),
        (["bench", "."], ". is a directory, where a solver instance is expected"),
        (["export", ".", "-o", "out"], ". is a directory, where a placement is expected"),
        (["trace", "info", "nowhere"], "cannot read trace nowhere: no such file"),
    ],
)
def test_paths_that_name_no_file(
    printed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = printed(*arguments)
    assert code == 2
    assert message in err
    assert_one_error(err)
    assert not list(tmp_path.iterdir())


def test_a_file_given_for_another_kind_of_file(job: Path, printed: Run, tmp_path: Path) -> None:
    placed = tmp_path / "placement.json"
    assert printed(*solve_arguments(job, placed))[0] == 0
    model, trace, profile = job / "model", job / "trace.safetensors", job / "profile.json"
    for arguments, message in (
        (solve_arguments(job, tmp_path / "p", trace=profile), "is a profile, where a trace is expected"),
        (solve_arguments(job, tmp_path / "p", profile=placed), "is a placement, where a profile is expected"),
        (solve_arguments(job, tmp_path / "p", profile=trace), "is a trace, where a profile is expected"),
        (solve_arguments(job, tmp_path / "p", profile=model / "config.json"), "holds no field schema"),
        (["export", profile, "-o", tmp_path / "p"], "is a profile, where a placement is expected"),
        (["trace", "import", placed, "-o", tmp_path / "p"], "no answer of SGLang or vLLM"),
        (["evaluate", placed, "--model", model, "--trace", job / "ids.npz", "--profile", profile], "trace"),
        (["bench", trace], "not an .npz"),
        (["inspect", "--model", trace], "trace.safetensors is not"),
        (["inspect", "--model", profile], "is a file of placer, not a model's config.json"),
    ):
        code, _, err = printed(*arguments)
        assert code == 2
        assert message in " ".join(err.split())
        assert_one_error(err)
        assert not (tmp_path / "p").exists()


def test_an_export_onto_a_file_says_so(job: Path, run: Run, tmp_path: Path) -> None:
    placed = tmp_path / "placement.json"
    assert run(*solve_arguments(job, placed))[0] == 0
    placement = json.loads(placed.read_text())
    # As if kt-kernel had been timed.
    placement["cpu_method"] = placement["hardware"]["cpu"]["method"] = "RAWINT4"
    placed.write_text(json.dumps(placement))
    code, _, err = run("export", placed, "-o", job / "profile.json")
    assert code == 2
    assert "it is a file" in err
    assert "space" not in err
    code, _, _ = run("export", placed, "-o", tmp_path / "server")
    assert code == 0
    umask = os.umask(0)
    os.umask(umask)
    for file in (tmp_path / "server").iterdir():
        assert file.stat().st_mode & 0o777 == (0o777 if file.suffix == ".sh" else 0o666) & ~umask


def test_written_files_have_the_mode_of_the_umask(job: Path, run: Run, tmp_path: Path) -> None:
    assert run(*solve_arguments(job, tmp_path / "placement.json"))[0] == 0
    assert run("trace", "synth", "--preset", "gpt-oss-20b", "-o", tmp_path / "synth")[0] == 0
    umask = os.umask(0)
    os.umask(umask)
    for path in (job / "trace.safetensors", job / "profile.json", *tmp_path.iterdir()):
        assert path.stat().st_mode & 0o777 == 0o666 & ~umask


def test_names_from_files_reach_the_terminal_spelled_out(job: Path, printed: Run, tmp_path: Path) -> None:
    evil = "[red]\x1b[31mx\rfake\u202e"
    model = tmp_path / f"model{evil}\nline"
    model.mkdir()
    (model / "config.json").write_text((job / "model" / "config.json").read_text())
    with np.load(job / "ids.npz") as ids:
        np.savez(tmp_path / f"{evil}.npz", **ids, domain=np.array([evil, "plain"] * 20))
    trace, placed = tmp_path / f"trace{evil}", tmp_path / f"placed{evil}"
    for arguments in (
        ["inspect", "--model", model],
        ["trace", "import", tmp_path / f"{evil}.npz", "--model", model, "-o", trace],
        ["trace", "info", trace],
        solve_arguments(job, placed, model=model, trace=trace),
        ["evaluate", placed, "--model", model, "--trace", trace, "--profile", job / "profile.json"],
        ["trace", "info", tmp_path / f"nowhere{evil}"],
    ):
        code, _, err = printed(*arguments)
        assert code == (2 if "nowhere" in str(arguments[-1]) else 0), err
        assert all(line.isprintable() for line in err.split("\n"))
        assert r"[red]\x1b[31mx\rfake\u202e" in err


def test_evaluation_tells_clients_from_running_requests(job: Path, run: Run, tmp_path: Path) -> None:
    placed = tmp_path / "placement.json"
    assert run(*solve_arguments(job, placed, concurrency=6, max_running=2))[0] == 0
    code, out, _ = run(
        "evaluate",
        placed,
        *judged_on(job),
        "--json",
    )
    assert code == 0
    document = json.loads(out)
    assert document["concurrency"] == 6
    assert document["running_requests"] == 2


def test_a_tiny_trace_is_said_to_be_too_little(job: Path, run: Run, tmp_path: Path) -> None:
    # 8 experts of top-2 need 80 tokens for 20 selections each.
    ids = np.argsort(np.random.default_rng(0).random((60, 4, 8)), axis=2)[:, :, :2].astype(np.uint8)
    np.savez(tmp_path / "few.npz", topk=ids, offsets=np.arange(0, 61, 10))
    assert (
        run("trace", "import", tmp_path / "few.npz", "-o", tmp_path / "few", "--model", job / "model")[0] == 0
    )
    assert run("trace", "info", tmp_path / "few")[2].startswith("too small: 60 tokens")
    assert run("trace", "info", job / "trace.safetensors")[2].startswith("useful: ")


def test_answers_fit_a_hundred_columns(job: Path, printed: Run, tmp_path: Path) -> None:
    for arguments in (
        solve_arguments(job, tmp_path / "placement.json"),
        solve_arguments(job, tmp_path / "p", hbm_budget="3.2GiB", min_kv_tokens=10**7),
        ["inspect", "--model", job / "model", "--plan", 8, "--gpu", "rtx-4090"],
        ["trace", "info", job / "trace.safetensors"],
    ):
        _, _, err = printed(*arguments)
        # Only a path may be longer.
        assert [line for line in err.splitlines() if len(line) > 100 and str(tmp_path) not in line] == []


def test_a_plan_is_explained_pinned_and_drawn_as_a_frontier(job: Path, run: Run, tmp_path: Path) -> None:
    plan, program = tmp_path / "placement.json", tmp_path / "level.lp"
    arguments = solve_arguments(job, plan, pin="1=none", write_lp=program)
    code, _, err = run(*arguments, "--frontier")
    assert code == 0, err
    assert "by running requests" in err
    assert "<- chosen" in err
    assert "Minimize" in program.read_text()
    placement = json.loads(plan.read_text())
    assert placement["hot"].get("1", []) == []
    assert placement["pinned"] == {"1": "none"}
    assert [point["chosen"] for point in placement["frontier"]].count(True) == 1
    code, out, _ = run("explain", plan, "--layer", 0, "--json")
    assert code == 0
    values = [place["value_us"] for place in json.loads(out)["places"]]
    assert values == sorted(values, reverse=True)
    code, _, err = run("explain", plan, "--layer", 0, "--expert", 7)
    assert code == 0
    assert "layer 0, expert 7 is" in err
    code, _, err = run("explain", plan, "--layer", 9)
    assert code == 2
    assert "layer 9 is not a MoE layer" in err


def test_limits_per_layer_hold_are_explained_and_say_what_would_fit(
    job: Path, run: Run, tmp_path: Path
) -> None:
    plan = tmp_path / "placement.json"
    code, _, err = run(*solve_arguments(job, plan, max_hot_per_layer=3, time_limit=5), "--prove")
    assert code == 0, err
    placement = json.loads(plan.read_text())
    assert placement["hot_per_layer"] == {"min": 0, "max": 3}
    assert max(len(hot) for hot in placement["hot"].values()) == 3
    full = next(layer for layer, hot in placement["hot"].items() if len(hot) == 3)
    code, _, err = run("explain", plan, "--layer", full)
    assert code == 0
    assert "held by --max-hot-per-layer 3" in err
    plan.unlink()
    code, _, err = run(*solve_arguments(job, plan, pin="1=none", min_hot_per_layer=1))
    assert code == 0, err
    # A pinned layer is exempt from the limits of all others, for those who read the plan too.
    assert json.loads(plan.read_text())["hot"]["1"] == []
    code, _, err = run("explain", plan, "--layer", "1")
    assert code == 0
    assert "held by --pin 1=none" in err


@pytest.mark.parametrize("pin", ["1", "1=some", "=all", "x=all", "-1=all"])
def test_a_pin_that_is_none_is_refused(job: Path, run: Run, tmp_path: Path, pin: str) -> None:
    code, _, err = run(*solve_arguments(job, tmp_path / "placement.json", pin=pin))
    assert code == 2
    assert "is not LAYER=all or LAYER=none" in err


@pytest.mark.parametrize("flag", ["--frontier", "--what-if", "--pin=1=all", "--write-lp=level.lp"])
def test_what_needs_a_trace_says_so(job: Path, run: Run, tmp_path: Path, flag: str) -> None:
    code, _, err = run(*solve_arguments(job, tmp_path / "placement.json", trace="none"), flag)
    assert code == 2
    assert "needs a trace" in err


def test_a_plan_keeps_the_method_that_was_timed(job: Path, run: Run, tmp_path: Path) -> None:
    placed = tmp_path / "placement.json"
    assert run(*solve_arguments(job, placed))[0] == 0
    placement = json.loads(placed.read_text())
    placed.write_text(json.dumps({**placement, "cpu_method": "AMXINT4"}))
    code, _, err = run("export", placed, "-o", tmp_path / "server")
    assert code == 2
    assert "cpu_method: is AMXINT4, but hardware.cpu.method, which was timed, is torch" in err


def test_targets_hold_without_a_trace_too(job: Path, run: Run, tmp_path: Path) -> None:
    output = tmp_path / "placement.json"
    code, _, err = run(*solve_arguments(job, output, trace="none", slo_tpot=0.0001))
    assert code == 3
    assert "--slo-tpot of 0.0001 ms (best level reaches" in err
    assert not output.exists()
    assert run(*solve_arguments(job, output, trace="none", slo_tpot=1000, slo_ttft=100000))[0] == 0


def test_enough_host_memory_is_enough(job: Path, run: Run, tmp_path: Path) -> None:
    arguments = solve_arguments(job, tmp_path / "placement.json", host_memory="1MiB", max_hot_per_layer=7)
    code, _, err = run(*arguments)
    assert code == 3
    enough = re.search(r"at least (\S+GiB) \(--host-memory SIZE\)", err)
    assert enough is not None, err
    arguments[arguments.index("1MiB")] = enough.group(1)
    assert run(*arguments)[0] == 0


def test_counts_of_one_run_hold_nothing_out_and_the_verdict_says_so(
    job: Path, run: Run, tmp_path: Path
) -> None:
    counts = np.full((4, 8), 100)
    counts[:, :4] += 300
    np.savez(tmp_path / "counts.npz", counts=counts, tokens=1000)
    trace = tmp_path / "counts.safetensors"
    assert run("trace", "import", tmp_path / "counts.npz", "--model", job / "model", "-o", trace)[0] == 0
    code, _, _ = run(*solve_arguments(job, tmp_path / "placement.json", trace=trace, hbm_budget="3.2GiB"))
    assert code == 0
    placement = json.loads((tmp_path / "placement.json").read_text())
    assert any("not split by request" in note for note in placement["notes"])
    assert placement["hot_total"] > 0


def test_the_trace_that_was_solved_on_never_calls_its_own_plan_wrong(
    job: Path, run: Run, tmp_path: Path
) -> None:
    placed = tmp_path / "placement.json"
    assert run(*solve_arguments(job, placed))[0] == 0
    options = [
        *judged_on(job),
    ]
    document = json.loads(run("evaluate", placed, *options, "--json")[1])
    assert document["output_token_us"].keys() == document["step_us"].keys()
    assert min(document["output_token_us"].values()) > 0
    assert "not the best" not in document["verdict"]


@pytest.mark.parametrize("seed", ["-1", "4294967296", "99999999999999999999"])
@pytest.mark.parametrize(
    "command", [["trace", "synth", "-o", "t.safetensors"], ["bench"], ["verify", "p.json"]]
)
def test_a_seed_that_no_generator_takes_is_refused_by_name(run: Run, command: list[str], seed: str) -> None:
    code, _, err = run(*command, "--seed", seed)
    assert code == 2
    assert "--seed" in err


@pytest.mark.parametrize(
    "extra",
    [("--size", "4x8x4"), ("--rivals", "highs"), ("--write", "folder"), ("instance.npz",)],
)
def test_growth_refuses_what_it_would_ignore(run: Run, extra: tuple[str, ...]) -> None:
    code, _, error = run("bench", "--growth", *extra)
    assert code == 2
    assert "cannot be used" in error


@pytest.mark.parametrize("extra", [("--csv", "rows.csv"), ("--rivals", "highs"), ("--json",)])
def test_writing_instances_refuses_what_it_would_ignore(
    run: Run, tmp_path: Path, extra: tuple[str, ...]
) -> None:
    code, out, error = run("bench", "--write", tmp_path / "folder", *extra)
    assert (code, out) == (2, "")
    assert f"--write solves nothing: {extra[0]} cannot be used" in error
    assert not (tmp_path / "folder").exists()
