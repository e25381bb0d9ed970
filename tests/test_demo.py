"""The report that the demo leaves beside what it writes."""

import shutil
import sys
from pathlib import Path

import pytest
from reported import ReportedJob

from placer.demo import drawn_report


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
    said = _said(job_reported, tmp_path)
    assert "pip install 'moe-placer[report]'" in said
    assert not (tmp_path / "report.html").exists()
