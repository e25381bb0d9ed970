"""`placer profile` on the command line: its options, `merge`, and what other commands refuse of a profile."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from profiles import SHAPE, profile
from tiny_model import tiny_model

from placer.profiler.profile import read_profile, write_profile

Run = Callable[..., tuple[int, str, str]]


def solve_options(folder: Path) -> list[object]:
    """`placer solve` of the model and the profile in ``folder``, without a trace."""
    options: list[object] = ["solve", "--model", folder / "model", "--trace", "none"]
    options += ["--profile", folder / "profile.json", "--concurrency", 2]
    return [*options, "-o", folder / "placement.json"]


def test_a_profile_with_its_table_and_its_samples(run: Run, tmp_path: Path) -> None:
    tiny_model(tmp_path / "model")
    options = ["profile", "--model", tmp_path / "model", "--gpu", "h200", "--cpu-kernel", "torch"]
    options += ["--threads", 1, "--max-seconds", 5, "--keep-samples", tmp_path / "samples"]
    output, table = tmp_path / "profile.json", tmp_path / "points.csv"
    code, out, err = run(*options, "-o", output, "--points", table, "--json", "-q")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["cpu"]["report"]["sizes"]
    assert len(list(csv.DictReader(table.open()))) == len(document["cpu"]["points"])
    # The same command reads the samples back instead of timing again.
    code, out, err = run(*options, "-o", output)
    assert code == 0
    assert "nothing was timed now: all samples, and the seconds they took, are of an earlier run" in " ".join(
        err.split()
    )
    code, _, err = run(*options, "-o", output, "--seed", 1)
    assert code == 2
    assert "seed was 0, is now 1" in err
    # What share of its roofline the kernel reached.
    code, out, err = run("hardware", "--profile", output, "--json")
    assert code == 0
    assert all(call["share"] > 0 for call in json.loads(out)["roofline"]["calls"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--quick", "--max-seconds", 20], "--quick and --max-seconds"),
        (["--sweep-threads", "--threads", 1], "--sweep-threads looks for a thread count"),
        (["--points", "profile.json"], "profile.json"),
        (["--max-seconds", 0], "--max-seconds is 0"),
        (["--seed", "99999999999999999999"], "--seed"),
    ],
)
def test_options_that_contradict_each_other(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[object], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_model(tmp_path / "model")
    (tmp_path / "profile.json").touch()
    code, _, err = run("profile", "--model", tmp_path / "model", "--gpu", "h200", *options)
    assert code == 2
    assert said in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--quick"], "--quick would change nothing"),
        (["--max-seconds", 9, "--seed", 1], "--max-seconds, --seed would change nothing"),
        (["--keep-samples", "samples"], "--keep-samples would change nothing"),
        (["--trace", "absent.safetensors"], "--trace would change nothing"),
        (["--sweep-threads"], "--sweep-threads would change nothing"),
        (["--cpu-kernel", "auto"], "--cpu-kernel would change nothing"),
        (["--points", "points.csv"], "--points would change nothing"),
        (["--threads", 57], "--threads is 57, xeon-8480+ has 56 cores"),
        (["--tp", 3], "tp 3 does not divide the 4 attention heads"),
        (["--tp", 2], "tp 2 cuts the experts' width 128 to 64"),
        (["merge", "a.json", "b.json"], "--model, --gpu, --cpu before 'merge' would change nothing"),
    ],
)
def test_a_datasheet_takes_no_option_of_timing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[object], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_model(tmp_path / "model")
    sheets = ["--gpu", "h200", "--cpu", "xeon-8480+"]
    code, out, err = run("profile", "--model", tmp_path / "model", *sheets, *options)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
    assert not (tmp_path / "profile.json").exists()


@pytest.mark.parametrize("threads", [1, 56])
def test_threads_of_a_datasheet_are_the_kernels(run: Run, tmp_path: Path, threads: int) -> None:
    tiny_model(tmp_path / "model")
    code, out, _ = run(
        "profile", "--model", tmp_path / "model", "--gpu", "h200", "--cpu", "xeon-8480+", "--threads", threads,
        "-o", tmp_path / "profile.json", "--json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out)["cpu"]["threads"] == threads


def test_a_profile_needs_a_model(run: Run) -> None:
    code, _, err = run("profile")
    assert code == 2
    assert "add --model DIR" in err


def test_merge_writes_one_profile_and_says_where_both_sides_come_from(run: Run, tmp_path: Path) -> None:
    write_profile(profile(cpu="a server"), tmp_path / "cpu.json")
    write_profile(profile(cpu="a desk", gpu="rtx-5090"), tmp_path / "gpu.json")
    merged = tmp_path / "merged.json"
    code, _, err = run("profile", "merge", tmp_path / "cpu.json", tmp_path / "gpu.json", "-o", merged)
    assert code == 0
    assert "CPU profiled 2026-01-01T00:00:00+00:00 on a server" in err
    # Nobody profiled what a datasheet says.
    assert "GPU taken 2026-01-01T00:00:00+00:00 from the datasheet of rtx-5090" in " ".join(err.split())
    found = read_profile(merged)
    assert (found.cpu.machine.cpu, found.gpu.name) == ("a server", "rtx-5090")


def test_merge_refuses_profiles_that_do_not_belong_together(run: Run, tmp_path: Path) -> None:
    write_profile(profile(), tmp_path / "cpu.json")
    write_profile(profile(tp=2), tmp_path / "gpu.json")
    merged = tmp_path / "merged.json"
    code, _, err = run("profile", "merge", tmp_path / "cpu.json", tmp_path / "gpu.json", "-o", merged)
    assert code == 2
    assert "tp 1 and tp 2" in err
    code, _, err = run("profile", "merge", tmp_path / "cpu.json", tmp_path / "none.json", "-o", merged)
    assert code == 2
    code, _, err = run(
        "profile", "merge", tmp_path / "cpu.json", tmp_path / "gpu.json", "-o", tmp_path / "cpu.json"
    )
    assert code == 2
    assert not merged.exists()


def test_solve_refuses_a_profile_of_other_threads_unless_it_is_forced(run: Run, tmp_path: Path) -> None:
    tiny_model(tmp_path / "model")
    write_profile(profile(), tmp_path / "profile.json")
    options = solve_options(tmp_path)
    code, _, err = run(*options, "--threads", 8)
    assert code == 2
    assert "the server is to run 8" in err
    assert not (tmp_path / "placement.json").exists()
    code, _, err = run(*options, "--cpu-method", "RAWINT4", "--force-profile")
    assert code == 2
    assert "the server is to run RAWINT4" in err
    code, out, _ = run(*options, "--threads", 8, "--force-profile", "--json")
    assert code == 0
    document = json.loads(out)
    # A plan names the threads that it was timed with, and says what was forced.
    assert document["kt"]["threads"] == 1
    (forced,) = [note for note in document["notes"] if "forced" in note]
    assert "made with 1 CPU threads, the server is to run 8; the export keeps 1" in forced


def test_solve_takes_another_models_profile_when_it_is_forced(run: Run, tmp_path: Path) -> None:
    tiny_model(tmp_path / "model")
    write_profile(profile(replace(SHAPE, expert_intermediate_size=256)), tmp_path / "profile.json")
    options = solve_options(tmp_path)
    assert run(*options)[0] == 2
    code, _, err = run(*options, "--force-profile")
    assert code == 0
    assert "forced: the profile was made for tiny with expert width 256" in err


def test_solve_refuses_a_profile_that_is_far_off_unless_it_is_forced(run: Run, tmp_path: Path) -> None:
    tiny_model(tmp_path / "model")
    made = profile()
    overall = replace(made.cpu.report.overall, mape=0.45)
    far_off = replace(made.cpu, report=replace(made.cpu.report, overall=overall))
    write_profile(replace(made, cpu=far_off), tmp_path / "profile.json")
    options = solve_options(tmp_path)
    code, _, err = run(*options)
    assert code == 2
    said = " ".join(err.split())
    assert "the CPU cost model is off by 45% on held-out calls, 30% is the most to plan with" in said
    assert "run 'placer profile' again" in said
    assert not (tmp_path / "placement.json").exists()
    code, out, _ = run(*options, "--force-profile", "--json")
    assert code == 0
    assert any("forced: the CPU cost model is off by 45%" in note for note in json.loads(out)["notes"])
    _, _, err = run(*options, "--force-profile", "-q")
    assert "warning: forced: the CPU cost model is off by 45% on held-out calls" in err


@pytest.mark.parametrize(("option", "given"), [("--running", "4,x"), ("--prefill", "0"), ("--running", "-2")])
def test_verify_refuses_steps_that_are_none(run: Run, tmp_path: Path, option: str, given: str) -> None:
    files = [
        tmp_path / "placement.json",
        "--model",
        tmp_path,
        "--trace",
        tmp_path / "t",
        "--profile",
        tmp_path / "p",
    ]
    code, _, err = run("verify", *files, option, given)
    assert code == 2
    assert f"{option} is" in err
