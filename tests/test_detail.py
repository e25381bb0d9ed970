"""What -q and -v print, and what a log shows of progress."""

import sys
import time
from pathlib import Path

import pytest
import typer
from rich.console import Group
from rich.text import Text

from placer.answer.console import print_answer
from placer.answer.detail import Detail
from placer.answer.part import InFull, VerdictLine
from placer.cli import app, main
from placer.cli.progress import ProgressBar, ProgressLines

EXAMPLE = Path(__file__).parent.parent / "examples" / "qwen3-30b-a3b"
ANSWER = Group(VerdictLine("it fits"), Group(Text("by 2 GiB"), InFull(Text("all lines"))))


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        (Detail.QUIET, ["it fits"]),
        (Detail.USUAL, ["it fits", "by 2 GiB"]),
        (Detail.FULL, ["it fits", "by 2 GiB", "all lines"]),
    ],
)
def test_an_answer_is_printed_to_the_detail_asked_for(
    detail: Detail, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    print_answer(ANSWER, detail)
    assert capsys.readouterr().err.splitlines() == said


def _run(patch: pytest.MonkeyPatch, *arguments: object) -> int | str | None:
    patch.setattr(sys, "argv", ["placer", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def test_quiet_prints_the_verdict_alone_and_the_next_command_speaks_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, "inspect", "--model", EXAMPLE, "-q") == 0
    (verdict,) = capsys.readouterr().err.splitlines()
    assert verdict.startswith("qwen3-30b-a3b: 48 MoE layers of 48, 128 experts, top-8")
    assert _run(monkeypatch, "inspect", "--model", EXAMPLE) == 0
    assert "one expert" in capsys.readouterr().err


def test_quiet_still_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert _run(monkeypatch, "inspect", "--model", tmp_path / "none", "-q") == 2
    err = capsys.readouterr().err
    assert "error: " in err
    assert "do: " in err
    assert _run(monkeypatch, "inspect", "--model", EXAMPLE, "-q", "-v") == 2
    assert "-q and -v were both given" in capsys.readouterr().err


def test_every_command_takes_both() -> None:
    def commands(group: object) -> list[object]:
        inner = list(getattr(group, "commands", {}).values())
        alone = [] if inner and not getattr(group, "invoke_without_command", False) else [group]
        return alone + [each for command in inner for each in commands(command)]

    found = commands(typer.main.get_command(app))
    assert len(found) > 15
    for command in found:
        named = {name for parameter in command.params for name in parameter.opts}  # type: ignore[attr-defined]
        assert {"-q", "--quiet", "-v", "--verbose"} <= named


def test_a_log_gets_a_line_every_ten_seconds_with_the_time_left_where_it_is_known() -> None:
    lines = ProgressLines(100.0, 10.0)
    assert lines.due("timing", 0.1, 45.0, 105.0) is None
    assert lines.due("timing", 0.2, 40.0, 110.0) == "timing: 20% done, about 40 s left"
    assert lines.due("timing", 0.25, 60.0, 119.9) is None
    assert lines.due("timing", 0.25, 60.0, 120.0) == "timing: 25% done, about 60 s left"
    assert lines.due("timing", 0.1, 540.0, 160.0) == "timing: 10% done, about 9 min left"
    assert lines.due("starting", 0.0, None, 170.0) == "starting ..."
    assert lines.due("timing", 0.01, None, 180.0) == "timing: 1% done"


def test_a_step_that_takes_long_is_told_again_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("placer.cli.progress.SECONDS_BETWEEN_LINES", 0.01)
    monkeypatch.setattr("placer.cli.progress.SECONDS_BETWEEN_LOOKS", 0.01)
    said = ""
    with ProgressBar() as bar:
        bar("loading the checkpoint", 0.0)
        patience = time.monotonic() + 30.0
        while said.count("\n") < 3 and time.monotonic() < patience:
            said += capsys.readouterr().err
    assert said.startswith("loading the checkpoint ...\n" * 3)


def test_short_work_says_nothing_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar() as bar:
        bar("reading", 0.5)
    assert capsys.readouterr().err == ""
