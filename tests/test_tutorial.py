"""The tutorial: its commands run in order in one folder, and print what it shows."""

import os
from pathlib import Path

import pytest

from placer.examples.shown_output import Step, steps_of, walk

REPOSITORY = Path(__file__).resolve().parents[1]
STEPS = steps_of((REPOSITORY / "docs/tutorial.md").read_text(encoding="utf-8"))


@pytest.mark.docs
def test_the_tutorial_prints_what_it_shows(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    taken = list(walk(STEPS, tmp_path, dict(os.environ)))
    assert not [each.difference() for each in taken if not each.as_shown]


def test_every_block_of_the_tutorial_is_a_step() -> None:
    blocks = (REPOSITORY / "docs/tutorial.md").read_text(encoding="utf-8").count("```") // 2
    assert blocks == sum(_blocks(step) for step in STEPS)


def _blocks(step: Step) -> int:
    return 1 if step.shown is None else 2
