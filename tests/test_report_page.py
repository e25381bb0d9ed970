"""report.html: one file that asks for nothing, shows names as text, and stays small; and the pictures."""

import dataclasses
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from conftest import Run
from PIL import Image
from placements import figures, placement_dict
from reported import ReportedJob

from placer.errors import BadInputError
from placer.extra import install_command
from placer.placement import PlacementDocument, write_placement
from placer.reports.chart import charts
from placer.reports.ledger import Ledger
from placer.reports.page import page
from placer.reports.picture import write_pictures
from placer.reports.report import Report, make_report
from placer.written_files import LIST


@pytest.fixture(scope="module")
def report(job_reported: ReportedJob) -> Report:
    return make_report(
        job_reported.placement,
        profile=job_reported.profile,
        trace=job_reported.trace,
        model=job_reported.model,
    )


@pytest.fixture(scope="module")
def text(report: Report) -> str:
    return page(report)


class Tags(HTMLParser):
    """Names and attributes of all start tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_nothing_is_asked_of_the_network(text: str) -> None:
    tags = Tags(text).tags
    assert not [(tag, held) for tag, held in tags if {"src", "href", "srcset", "action", "data"} & set(held)]
    assert not {tag for tag, _ in tags} & {"link", "iframe", "object", "embed", "base", "form", "img"}
    policy = next(held["content"] for _, held in tags if held.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    for asking in ("http://", "https://", "@import", "url(", "fetch(", "XMLHttpRequest", "import("):
        assert asking not in text


def test_names_out_of_files_stay_text(report: Report, text: str) -> None:
    """The model, a note and a domain are named in markup; the scripts are the figures, the library and the page's."""
    figures = len(re.findall('class="figure"', text))
    assert figures == 6
    assert sum(tag == "script" for tag, _ in Tags(text).tags) == figures + 2
    assert "<i>" not in text
    assert "&lt;i&gt;code&lt;/i&gt;" in text
    assert "alert(&#39;name&#39;)" in text
    assert report.title.startswith("tiny <script>")


def test_what_ifs_and_moving_hot_sets_have_a_table(report: Report, text: str) -> None:
    tables = {held.get("id") for tag, held in Tags(text).tags if tag == "table"}
    assert {"what-if", "moving", "placements", "on-trace"} <= tables
    assert not report.absent


def test_names_in_figures_are_no_markup_to_plotly(report: Report) -> None:
    """plotly takes <a href> and <b> in its texts for markup; an escaped name stays a name."""
    ledger = Ledger("HBM", (("<a href='x'>kv</a>", 5),), ())
    drawn = charts(dataclasses.replace(report, ledgers=(ledger,)))
    assert drawn["ledger-0"].data[0].name == "&lt;a href=&#39;x&#39;&gt;kv&lt;/a&gt;"


def test_figures_are_json_with_the_placement_in_them(job_reported: ReportedJob, text: str) -> None:
    found = dict(re.findall(r'class="figure" data-place="([^"]+)">(.*?)</script>', text))
    assert set(found) == {"heat-map", "ledger-0", "ledger-1", "frontier", "cost-cpu", "layers"}
    hot, cold = json.loads(found["heat-map"])["data"]
    assert (hot["name"], cold["name"]) == ("hot", "cold")
    assert hot["y"] == [str(layer) for layer in job_reported.document.model.layers]
    chosen = json.loads(found["frontier"])["data"][-1]
    assert (chosen["name"], chosen["x"]) == ("chosen", [job_reported.document.kv.tokens])


def test_the_same_report_is_the_same_file(report: Report, text: str) -> None:
    assert page(report) == text


def test_the_largest_models_stay_under_six_megabytes(tmp_path: Path) -> None:
    """92 layers of 896 experts, each with a value of four digits."""
    L, E = 92, 896
    random = np.random.default_rng(0)
    values = np.exp(random.normal(2, 1.5, (L, E)))
    layers = range(1, L + 1)
    document = placement_dict(
        {layer: np.argsort(-row)[:300].tolist() for layer, row in zip(layers, values, strict=True)},
        layers=layers,
        experts=E,
        top_k=16,
        sensitivity={
            "expert_bytes_per_gpu": 60,
            "price_us_per_gib": 1.0,
            "tokens_per_s_per_gib": 1.0,
            "value_us": {
                str(layer): [float(f"{value:.4g}") for value in row]
                for layer, row in zip(layers, values, strict=True)
            },
        },
        predicted={**figures(), "per_layer_ms": random.random(L).tolist(), "provenance": {"cold": "fitted"}},
    )
    write_placement(PlacementDocument.model_validate(document), tmp_path / "placement.json")
    assert len(page(make_report(tmp_path / "placement.json")).encode()) < 6e6


def test_pictures_are_for_print(report: Report, tmp_path: Path) -> None:
    paths = write_pictures(report, tmp_path / "pictures")
    assert {path.name for path in paths} == {
        "experts.png",
        "hbm.png",
        "host.png",
        "frontier.png",
        "layers.png",
        "cost-cpu.png",
    }
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {LIST, *(path.name for path in paths)}
    for path in paths:
        with Image.open(path) as picture:
            assert picture.info["dpi"] == pytest.approx((200, 200), abs=0.1)
            assert len(set(picture.convert("RGB").getdata())) > 10


def test_a_picture_of_another_is_never_overwritten(report: Report, tmp_path: Path) -> None:
    (tmp_path / "hbm.png").write_bytes(b"mine")
    with pytest.raises(BadInputError, match=r"hbm\.png would be overwritten") as caught:
        write_pictures(report, tmp_path)
    assert caught.value.hint.endswith("choose another folder with --png")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"mine"]
    (tmp_path / "hbm.png").unlink()
    assert write_pictures(report, tmp_path) == write_pictures(report, tmp_path)


def test_the_command_writes_both_and_says_what_is_missing(
    job_reported: ReportedJob, run: Run, tmp_path: Path
) -> None:
    output = tmp_path / "out.html"
    code, out, err = run("report", job_reported.placement, "-o", output, "--png", tmp_path / "png")
    assert (code, out) == (0, "")
    assert "experts hot" in err
    assert "not shown: cost model" in err
    code, out, _ = run(
        "report",
        job_reported.placement,
        "--profile",
        job_reported.folder / "profile.json",
        "-o",
        output,
        "--json",
    )
    said = json.loads(out)
    assert code == 0
    assert said["bytes"] == output.stat().st_size
    assert set(said["absent"]) == {"domains", "score on a trace"}


def test_the_command_refuses_what_cannot_be_and_leaves_no_file(
    job_reported: ReportedJob, run: Run, tmp_path: Path
) -> None:
    placed, output = job_reported.placement, tmp_path / "out.html"
    trace = job_reported.folder / "trace.safetensors"
    for arguments, message in (
        ([job_reported.folder / "none.json", "-o", output], "no such file"),
        ([job_reported.folder / "profile.json", "-o", output], "is a profile, where a placement is expected"),
        ([placed, "--trace", trace, "-o", output], "add --model and --profile"),
        (["/dev/null", "-o", output], "no regular file"),
        ([placed, "-o", placed], "it is an input of this command"),
        ([placed, "-o", output, "--png", placed], "choose another folder with --png"),
    ):
        code, _, err = run("report", *arguments)
        assert code == 2
        assert message in err
        assert not output.exists()


@pytest.mark.parametrize("package", ["plotly", "jinja2", "matplotlib"])
def test_a_missing_package_is_named_with_its_cure(
    package: str, job_reported: ReportedJob, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    code, _, err = run(
        "report", job_reported.placement, "-o", tmp_path / "out.html", "--png", tmp_path / "png"
    )
    assert code == 4
    assert package in err
    assert install_command("report") in err
    assert not (tmp_path / "out.html").exists()
