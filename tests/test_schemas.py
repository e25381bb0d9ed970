"""JSON Schemas: one for every document and file, as strict as what placer writes."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from json_documents import FILES, check_document, closed, schema_name
from jsonschema import Draft202012Validator
from placements import placement_dict
from reported import ReportedJob
from small_traces import count_trace, token_trace
from typer.main import get_command

import placer
import placer.cli
from placer.cli.application import app
from placer.profiler.trace.file import write_trace
from placer.profiler.trace.trace import Trace
from placer.schemas.derived import derived_schemas
from placer.schemas.schema import schema, schema_names

EXAMPLE = Path(placer.__file__).parents[1] / "examples/tiny-moe"
OF_FILES = {"placement", "profile", "trace", "benchmark"}


def commands_with_json() -> Iterator[list[str]]:
    """Every command that takes --json, as words."""
    pending: list[tuple[list[str], Any]] = [([], get_command(app))]
    while pending:
        words, command = pending.pop()
        pending += [([*words, name], inner) for name, inner in getattr(command, "commands", {}).items()]
        if words and any("--json" in parameter.opts for parameter in command.params):
            yield words


@pytest.mark.parametrize("name", schema_names())
def test_every_schema_is_one(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize("words", commands_with_json(), ids=" ".join)
def test_every_command_with_json_has_a_schema(words: list[str]) -> None:
    assert schema_name(words) in schema_names()


def test_every_schema_is_of_a_command_or_a_file() -> None:
    of_commands = {schema_name(words) for words in commands_with_json()}
    left = set(schema_names()) - of_commands - OF_FILES
    assert left == {"hardware-list", "verify-kt-log", "bench-growth", "export-check"}


@pytest.mark.parametrize("name", sorted(set(schema_names()) - {*FILES.values(), "trace"}))
def test_no_document_has_room_for_other_fields(name: str) -> None:
    assert schema(name) == closed(schema(name))


@pytest.mark.parametrize("name", ["placement", "profile"])
def test_the_shipped_schemas_are_those_of_the_readers(name: str) -> None:
    shipped = Path(placer.__file__).parent / "schemas" / f"{name}.schema.json"
    assert shipped.read_text(encoding="utf-8") == derived_schemas()[name], (
        "write it again: python -m placer.schemas.derived"
    )


def test_an_unknown_schema_is_an_error() -> None:
    with pytest.raises(KeyError):
        schema("../placement")


@pytest.mark.parametrize(
    "trace",
    [
        token_trace([[[0, 1]], [[2, 1]]], experts=4, request=[0, 1], domain=[0, 1], domains=("code", "chat")),
        count_trace([[[3, 1, 2, 0]]], top_k=2),
    ],
    ids=["tokens", "counts"],
)
def test_the_header_of_a_trace_keeps_its_schema(trace: Trace, tmp_path: Path) -> None:
    write_trace(trace, tmp_path / "trace.safetensors")
    assert faults_of_header(tmp_path / "trace.safetensors") == []


def test_the_bundled_trace_keeps_the_schema() -> None:
    path = EXAMPLE / "traces/trace.safetensors"
    assert faults_of_header(path) == []
    assert faults_of_header(path, phase={"dtype": "U16"})


def faults_of_header(path: Path, **changed: Any) -> list[str]:
    """What the schema finds in the safetensors header at ``path`` with tensors changed."""
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    for name, fields in changed.items():
        header[name].update(fields)
    return [fault.message for fault in Draft202012Validator(schema("trace")).iter_errors(header)]


# A plan whose host memory is not known.
PLANNED = ["inspect", "--model", EXAMPLE, "--gpu", "rtx-4090", "--plan", 4, "--json"]


def test_a_document_with_another_field_type_or_silent_null_is_noticed(run: Run) -> None:
    _, out, _ = run(*PLANNED)
    words, document = [str(each) for each in PLANNED], json.loads(out)

    def changed(**fields: Any) -> str:
        return json.dumps({**document, **fields})

    check_document(words, changed())
    for fields in (
        {"extra": 1},
        {"experts": "8"},
        {"experts": float("inf")},
        {"experts": -1},
        {"model": None},
    ):
        with pytest.raises(AssertionError):
            check_document(words, changed(**fields))
    plan = document["plan"]
    assert plan["host"]["memory_bytes"] is None
    reasons = {path: why for path, why in plan["null_reasons"].items() if path != "host.memory_bytes"}
    with pytest.raises(AssertionError, match=r"null without a reason .*plan\.host\.memory_bytes"):
        check_document(words, changed(plan={**plan, "null_reasons": reasons}))


# Commands whose documents no other test asks for.


def test_benchmarks_keep_their_schemas(run: Run) -> None:
    assert run("trace", "bench", "--ids", 100_000, "--json")[0] == 0
    small = ("--family", "balanced", "--size", "1x16x2", "--time-limit", 1)
    assert run("bench", *small, "--json")[0] == 0


def test_a_placement_with_every_section_keeps_its_schema(
    job_reported: ReportedJob, run: Run, tmp_path: Path
) -> None:
    job = job_reported.folder
    # The job's own folder holds a trace, which a checkpoint's folder does not.
    (tmp_path / "model").mkdir()
    shutil.copy(job / "config.json", tmp_path / "model")
    given = (
        "--model",
        tmp_path / "model",
        "--trace",
        job / "trace.safetensors",
        "--profile",
        job / "profile.json",
    )
    traffic = ("--prompt-tokens", 16, "--output-tokens", 16, "--concurrency", 4, "--slo-tpot", 1000)
    quick = ("--max-running", 4, "--chunk", 512, "--gap", 0.05, "--time-limit", 1)
    limits = ("--hbm-budget", "4GiB", "--pin", "2=all", "--max-hot-per-layer", 5)
    more = ("--robust", "regret", "--mix", "<i>code</i>=0.5,chat=0.5", "--frontier", "--what-if")
    code, out, err = run(
        "solve", *given, *traffic, *limits, *quick, *more, "-o", tmp_path / "plan.json", "--json"
    )
    assert code == 0, err
    optional = {"robust", "mix", "frontier", "what_if", "pinned", "hot_per_layer", "dynamic"}
    assert optional <= set(json.loads(out))


def test_what_is_asked_of_a_placement_keeps_its_schema(
    job_reported: ReportedJob, run: Run, tmp_path: Path
) -> None:
    placement, profile = job_reported.placement, job_reported.folder / "profile.json"
    assert run("hardware", "--profile", profile, "--json")[0] == 0
    assert run("explain", placement, "--layer", job_reported.model.moe_layers[0], "--json")[0] == 0
    assert run("export", placement, "--runtime", "llama.cpp", "-o", tmp_path / "export", "--json")[0] == 0


PAGE = (Path(placer.__file__).parents[1] / "docs/file-formats.md").read_text(encoding="utf-8")


def test_the_page_on_formats_names_every_schema_and_every_command() -> None:
    for name in schema_names():
        assert f"[{name}](../placer/schemas/{name}.schema.json)" in PAGE
    for words in commands_with_json():
        assert f"`placer {' '.join(words)}`" in PAGE


def test_its_example_validates_a_placement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "placement.json").write_text(json.dumps(placement_dict({3: [1, 0]}, layers=[3], experts=4)))
    exec(example, {})
    assert "'placement', 'preflight', 'profile'" in capsys.readouterr().out
