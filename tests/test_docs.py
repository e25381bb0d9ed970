"""The documents: links lead somewhere, and what is shown runs."""

import hashlib
import json
import re
import sys
from pathlib import Path

import pytest
from documented_commands import commands_in, documents, parse, parse_module
from placements import placement_dict

REPOSITORY = Path(__file__).resolve().parents[1]
DOCUMENTS = documents(REPOSITORY)
of_every_document = pytest.mark.parametrize(
    "path", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY))
)


@of_every_document
def test_relative_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path}: {target}"


@of_every_document
def test_every_command_is_one_that_placer_takes(path: Path) -> None:
    for command in commands_in(path.read_text(encoding="utf-8"), "placer"):
        parse(command)


@of_every_document
def test_every_module_that_is_run_takes_these_arguments(path: Path) -> None:
    for command in commands_in(path.read_text(encoding="utf-8"), "python -m"):
        parse_module(command)


@of_every_document
def test_every_target_of_make_exists(path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for command in commands_in(path.read_text(encoding="utf-8"), "make"):
        assert {word for word in command.words[1:] if "=" not in word} <= set(targets), command


@pytest.mark.parametrize(
    "command",
    [
        "placer resolve --model DIR",
        "placer trace infos trace.safetensors --json",
        "placer inspect --model DIR --tps 2",
        "placer inspect --model DIR --tp two",
        "placer inspect --model DIR --gpu h1000",
        "placer solve … --hbm-budget 72GX",
        "placer solve --model DIR -o placement.json",
        "placer export placement.json --runtime sglang -o DIR",
        "placer --verbose",
        "placer",
    ],
)
def test_a_wrong_command_would_be_noticed(command: str) -> None:
    (found,) = commands_in(f"    {command}\n", "placer")
    with pytest.raises(AssertionError):
        parse(found)


@pytest.mark.parametrize(
    "command",
    ["python -m placer.nowhere", "python -m placer.examples.held_out_gains trace.npz --modle olmoe"],
)
def test_a_wrong_module_would_be_noticed(command: str) -> None:
    (found,) = commands_in(f"    {command}\n", "python -m")
    with pytest.raises(AssertionError):
        parse_module(found)


def test_the_runtime_authors_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    plan = placement_dict({3: [1, 0]}, layers=[3], experts=4)
    plan["model"]["config_sha256"] = hashlib.sha256(b"{}").hexdigest()
    (tmp_path / "placement.json").write_text(json.dumps(plan))
    (example,) = re.findall(
        r"```python\n(.*?)```", (REPOSITORY / "docs/runtime-authors.md").read_text(), re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(REPOSITORY / "placer" / "runtime"))
    names: dict[str, object] = {}
    exec(example.replace("/models/checkpoint", str(tmp_path)), names)
    assert names["plan"].hot == {3: (1, 0)}  # type: ignore[attr-defined]
    sys.modules.pop("load", None)


def test_every_document_stands_where_its_figures_are_reproduced() -> None:
    page = REPOSITORY / "docs/reproduce.md"
    linked = {
        (page.parent / target).resolve()
        for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8"))
    }
    of_users = {path for path in DOCUMENTS if path.parent != REPOSITORY} | {REPOSITORY / "README.md"}
    assert of_users - linked <= {page}
