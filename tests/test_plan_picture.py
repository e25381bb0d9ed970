"""The picture of a plan: small, the same for the same plan, and readable on light and dark pages."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from placements import placement_dict

from placer.examples.plan_picture import INK, main

pytest.importorskip("matplotlib")
REPOSITORY = Path(__file__).resolve().parents[1]


def drawn(folder: Path, name: str) -> str:
    plan = folder / "placement.json"
    plan.write_text(json.dumps(placement_dict({3: [1, 0], 4: []}, layers=[3, 4], experts=4)))
    assert main([str(plan), "-o", str(folder / name)]) == 0
    return (folder / name).read_text(encoding="utf-8")


def test_the_same_plan_gives_the_same_picture(tmp_path: Path) -> None:
    picture = drawn(tmp_path, "one.svg")
    assert picture == drawn(tmp_path, "two.svg")
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert "hot experts of 4" in picture


@pytest.mark.parametrize("background", [0xFF, 0x0D])
def test_its_text_is_read_on_white_and_on_black(background: int) -> None:
    """A contrast of 3.5 to 1, by the formula of WCAG 2, between 3 for large text and 4.5 for small."""

    def luminance(*levels: int) -> float:
        linear = [
            level / 255 / 12.92 if level <= 10 else ((level / 255 + 0.055) / 1.055) ** 2.4 for level in levels
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    ink = luminance(*(int(INK[at : at + 2], 16) for at in (1, 3, 5)))
    page = luminance(background, background, background)
    assert (max(ink, page) + 0.05) / (min(ink, page) + 0.05) > 3.5


def test_the_documents_picture_is_small() -> None:
    picture = REPOSITORY / "docs/plan.svg"
    assert picture.stat().st_size < 100_000
    assert "this plan" in picture.read_text(encoding="utf-8")
