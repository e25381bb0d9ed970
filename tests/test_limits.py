"""docs/limits.md: the figures of the synthetic traces that it names."""

import re
from pathlib import Path

import pytest

from placer.profiler.trace.info import trace_info
from placer.profiler.trace.synth import synthesise

PAGE = (Path(__file__).resolve().parents[1] / "docs/limits.md").read_text(encoding="utf-8")


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
    assert said.format(*shares) in re.sub(r"\s+", " ", PAGE)
