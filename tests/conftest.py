"""Fixtures that several test files share: `placer` as a user runs it, and a machine for an export's scripts."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from json_documents import check_document

from placer.cli import main

if TYPE_CHECKING:
    from reported import ReportedJob

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(printed: Run) -> Run:
    """Run `placer` with arguments: (exit code, stdout, stderr); errors are on one line each, not wrapped."""

    def runner(*arguments: object) -> tuple[int, str, str]:
        code, out, err = printed(*arguments)
        return code, out, err if code == 0 else re.sub(r"\n +(?!do: )", " ", err)

    return runner


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `placer` with arguments: (exit code, stdout, stderr) as they are printed; JSON is held against its schema.

    Progress, which is printed where a machine is slow, is left out.
    """
    monkeypatch.setattr("placer.cli.progress.SECONDS_BETWEEN_LINES", math.inf)

    def runner(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["placer", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        if "--json" in arguments and captured.out:
            check_document([str(each) for each in arguments], captured.out)
        code = caught.value.code
        return code if isinstance(code, int) else 0, captured.out, captured.err

    return runner


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with an FP8 checkpoint, CPU weights, and packages that stand for sglang-kt and kt-kernel."""
    from kt_export import make_machine

    return make_machine(tmp_path / "machine")


@pytest.fixture(scope="session")
def job_reported(tmp_path_factory: pytest.TempPathFactory) -> "ReportedJob":
    """A solved job on the tiny model, for reports."""
    from reported import reported_job

    return reported_job(tmp_path_factory.mktemp("reported"))
