"""docs/mathematics.md: its example runs, and the files that it names are there."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = (REPOSITORY / "docs/mathematics.md").read_text(encoding="utf-8")


def test_the_example_of_the_bound_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example, {})
    printed = capsys.readouterr().out.strip()
    assert printed == "True True"
    assert f"It prints `{printed}`" in PAGE


def test_the_files_that_it_names_are_there() -> None:
    named = re.findall(r"`((?:placer|profiler|solvers|tests)/[\w/]+(?:\.py)?)/?`", PAGE)
    assert len(named) > 10
    for path in named:
        assert (REPOSITORY / path).exists(), path
