"""docs/limits.md: its figures are those of the synthetic traces and of the table that it names."""

import re
from pathlib import Path

import pytest

from placer.profiler.trace.info import trace_info
from placer.profiler.trace.synth import synthesise

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = re.sub(r"\s+", " ", (DOCS / "limits.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("preset", "said"),
    [
        ("mixtral", "say *flat*: the hottest half leaves {2} fewer cold selections than chance"),
        (
            "domain-bound",
            "the verdict is *domain-bound*: a domain's own hot half serves {3} of its selections, another domain's hot "
            "half {2}",
        ),
    ],
)
def test_the_traces_that_speak_against_placement(preset: str, said: str) -> None:
    # What `placer trace synth --preset NAME` makes.
    found = trace_info(
        synthesise(preset, requests=64, prompt_tokens=128, output_tokens=256, domains=None, seed=0)
    )
    # Held-out coverage and chance come first, in either reason.
    shares = re.findall(r"(\d+(?:\.\d+)?%)(?! to)(?!\))", found["verdict_reason"])
    assert said.format(*shares) in PAGE


def test_gains_on_real_routing_are_counted_from_their_table() -> None:
    lines = (DOCS / "held-out-gains.md").read_text(encoding="utf-8").splitlines()
    names, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")
    )
    cases = [dict(zip(names, row, strict=True)) for row in rows]
    unproven = [case for case in cases if case["frequency"].startswith(("returned", "none", "-"))]
    assert all(case["uniform"].startswith("+") for case in cases)
    assert (
        f"the frequency ranking or not provably faster than it in {len(unproven)} of {len(cases)} cases, and faster "
        "than the runtime's default in all of them" in PAGE
    )
