"""docs/reference.md: every function as it is, and an example that runs."""

import re
from pathlib import Path

import pytest
from api_reference import REFERENCE, functions, written


def test_it_is_what_make_reference_writes() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == written(), "run `make reference`"


def test_every_function_has_its_place() -> None:
    headings = re.findall(r"^### placer\.(\w+)$", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == functions()
    assert {"inspect", "trace", "profile", "solve", "export"} < set(headings)


def test_its_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(import placer\n.*?)```", REFERENCE.read_text(), re.DOTALL)
    checkpoint = REFERENCE.parents[1] / "examples" / "tiny-moe"
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(example.replace('"examples/tiny-moe"', repr(str(checkpoint))), names)
    plan = names["plan"]
    assert (tmp_path / "placement.json").is_file()
    assert plan.total_experts == 80  # type: ignore[attr-defined]
