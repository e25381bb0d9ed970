"""The report that the demo leaves beside what it writes."""

import shlex
import shutil
import sys
from pathlib import Path

import pytest
from reported import ReportedJob

from placer import demo
from placer.demo import DemoInterrupted, drawn_report, run_demo
from placer.errors import BadInputError
from placer.examples import example_folder
from placer.extra import install_command
from placer.profiler.trace.trace import TokenTrace


def _said(job: ReportedJob, folder: Path) -> str:
    shutil.copy(job.placement, folder / "placement.json")
    return drawn_report(folder, job.model, job.trace, job.profile, lambda _text, _share: None).plain


def test_the_report_is_written_beside_the_placement(job_reported: ReportedJob, tmp_path: Path) -> None:
    assert _said(job_reported, tmp_path) == f"report: {tmp_path / 'report.html'}, open it in a browser"
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "On the trace given" in text
    assert "Not shown" not in text


def test_without_what_draws_it_the_demo_says_how_to_get_it(
    job_reported: ReportedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setenv("COLUMNS", "1000")
    said = _said(job_reported, tmp_path)
    install, draw = said.partition("do: ")[2].split("\nthen: ")
    assert install == install_command("report")
    words = shlex.split(draw.replace("\\\n", " "))
    assert words[words.index("report") :] == [
        *("report", str(tmp_path / "placement.json"), "--profile", str(tmp_path / "profile.json")),
        *("--trace", str(tmp_path / "trace.safetensors"), "--model", str(example_folder("qwen3-30b-a3b"))),
        *("-o", str(tmp_path / "report.html")),
    ]
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", ["profile.json", "sglang-kt/README.md"])
def test_nothing_that_is_there_is_lost(tmp_path: Path, name: str) -> None:
    (tmp_path / "sglang-kt").mkdir()
    (tmp_path / name).write_text("mine")
    with pytest.raises(BadInputError, match=f"{name} would be overwritten"):
        run_demo(tmp_path)
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["mine"]


def stop(*_asked: object, **_named: object) -> None:
    raise KeyboardInterrupt


def test_interrupted_before_anything_is_written_it_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "synthesise", stop)
    (tmp_path / "there").mkdir()
    for folder in (tmp_path / "new" / "folder", tmp_path / "there"):
        with pytest.raises(KeyboardInterrupt) as caught:
            run_demo(folder)
        assert not isinstance(caught.value, DemoInterrupted)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_interrupted_later_it_says_what_is_there_and_how_to_go_on(
    job_reported: ReportedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def synthesised(_name: str, *, seed: int) -> TokenTrace:
        return job_reported.trace

    monkeypatch.setattr(demo, "synthesise", synthesised)
    monkeypatch.setattr(demo, "profile_model", stop)
    with pytest.raises(DemoInterrupted) as caught:
        run_demo(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} has this run's trace.safetensors; nothing was timed yet: run the demo again"
    )
    assert caught.value.command is None

    monkeypatch.setattr(demo, "profile_model", lambda *_: job_reported.profile)
    monkeypatch.setattr(demo, "plan", stop)
    with pytest.raises(DemoInterrupted) as caught:
        run_demo(tmp_path)
    assert str(caught.value) == f"{tmp_path} has this run's trace.safetensors and profile.json"
    assert (tmp_path / "profile.json").is_file()
    command = str(caught.value.command)
    assert " solve --model " in command
    started = shlex.split(command.partition(" solve ")[0])
    assert shutil.which(started[0])
    assert started in (["placer"], [sys.executable, "-m", "placer"])
    assert f"--trace {tmp_path}/trace.safetensors --profile {tmp_path}/profile.json" in command
    assert command.endswith(f"--host-memory 64GiB --force-profile -o {tmp_path}/placement.json")
