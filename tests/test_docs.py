"""The documents: links lead somewhere, and what is shown runs."""

import hashlib
import json
import re
import sys
from pathlib import Path

import pytest
from placements import placement_dict

REPOSITORY = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    path
    for folder in (".", "docs", "examples", "placer")
    for path in (REPOSITORY / folder).rglob("*.md")
    if not any(
        part.startswith(".") or part in ("build", "node_modules")
        for part in path.relative_to(REPOSITORY).parts
    )
)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_relative_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path}: {target}"


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
