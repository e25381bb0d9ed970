"""The notebook of the Python API: it runs, from first to last, and is kept without outputs."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

WALKTHROUGH = Path(__file__).resolve().parents[1] / "examples" / "walkthrough.ipynb"


def read() -> Any:
    return nbformat.read(WALKTHROUGH, as_version=4)


def printed(cell: Any) -> str:
    """What a cell that ran printed, and the value of its last line."""
    return "".join(
        output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in cell.outputs
    )


def test_it_is_kept_without_outputs() -> None:
    notebook = read()
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly")
    # What the notebook writes goes where tests write; it names no folder itself.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = read()
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    text = "\n".join(printed(cell) for cell in notebook.cells if cell.cell_type == "code")
    assert "True" in text
    assert "of 80 experts hot" in text
    assert "static placement helps" in text
    assert "the plan holds" in text
    assert "sglang-kt 0.7.2" in text
    assert "InfeasibleError" in text
    assert {path.name for path in tmp_path.glob("*/*")} == {"placement.json", "report.html", "sglang-kt"}
