"""docs/runtimes.md: the tests that it rests on are there, and its figures are what the code computes."""

import re
from pathlib import Path

import family_configs
import pytest

from placer.exports.kt_ranking import cut_ratio
from placer.exports.kt_selection import RUNTIME
from placer.exports.kt_warnings import mla_promise
from placer.exports.vllm_flags import VLLM

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = (REPOSITORY / "docs/runtimes.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"tests/\w+\.py", PAGE))))
def test_a_test_that_a_note_rests_on_is_there(name: str) -> None:
    assert (REPOSITORY / name).is_file()


def test_every_note_says_how_it_is_known() -> None:
    for line in PAGE.splitlines():
        cells = line.strip("|").split(" | ")
        if line.startswith("| ") and len(cells) == 3 and not cells[0].endswith("what it does"):
            assert re.search(r"\b(run|read|reported)\b", cells[2]), line


def test_the_revisions_are_those_that_exports_name() -> None:
    assert f"## {RUNTIME} with kt-kernel 0.7.2" in PAGE
    assert f"## Stock {VLLM}" in PAGE


def test_its_figures() -> None:
    assert int(1440 * (436 / 1440)) == 435
    assert int(1440 * cut_ratio(436, 1440)) == 436
    assert "436 of 1,440 experts as 436/1440 give 435" in PAGE
    assert f"{mla_promise(family_configs.DEEPSEEK_V3):.1f} times the tokens that fit" in PAGE
