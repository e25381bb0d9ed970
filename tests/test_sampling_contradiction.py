"""Edited placements whose fields on sampling error disagree are refused by name."""

from typing import Any

import pytest
from placements import figures, placement_dict
from pydantic import ValidationError

from placer.placement import PlacementDocument, render_placement


def document(**changes: Any) -> dict[str, Any]:
    """A plan with a gain over one baseline, steps, a mix and a worst domain that agree."""
    made = placement_dict({0: [0]}, layers=[0], experts=2, baselines={"uniform": figures()})
    made["heldout"] |= {
        "chosen": "plan",
        "requests": 30,
        "gains": {"uniform": {"mean": 0.2, "low": 0.1, "high": 0.3, "distinct": True}},
        "steps": {"decode_steps": [64, 128], "choosing_us": [9.0, 9.0], "used": 64, "converged": True},
    }
    domain = {"plan_us": 2.0, "mix_us": 3.0, "frequency_us": 3.0, "own_us": 2.0, "regret": 0.0}
    made["mix"] = {"code": 0.5, "prose": 0.5}
    made["robust"] = {
        "criterion": "time",
        "worst": "code",
        "value": 2.0,
        "bound": 1.9,
        "gap": 0.05,
        "weights": {"code": 1.0, "prose": 0.0},
        "domains": {"code": domain, "prose": domain},
    }
    for path, value in changes.items():
        at: Any = made
        *parents, last = path.split("__")
        for name in parents:
            at = at[name]
        at[last] = value
    return made


def test_fields_that_agree_are_read_and_written_again() -> None:
    read = PlacementDocument.model_validate(document())
    again = PlacementDocument.model_validate_json(render_placement(read))
    assert again == read
    assert again.heldout.gains is not None
    assert again.heldout.gains["uniform"].distinct


def test_a_document_without_them_is_read() -> None:
    made = document()
    for name in ("gains", "steps", "requests"):
        del made["heldout"][name]
    del made["mix"], made["robust"]
    read = PlacementDocument.model_validate(made)
    assert read.heldout.gains is None
    assert "mix" not in render_placement(read)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("heldout__gains__uniform__low", 0.4, "low: 0.4 is more than high 0.3"),
        ("heldout__gains__uniform__low", -0.1, "distinct: is True, but low -0.1 and high 0.3 say else"),
        ("heldout__gains__uniform__distinct", False, "distinct: is False"),
        ("heldout__gains__uniform__high", None, "give all three or none"),
        ("heldout__gains__lru", {"mean": 0.1}, "heldout.gains.lru: is not one of baselines"),
        ("heldout__chosen", "lru", "heldout.chosen: is lru"),
        ("heldout__steps__used", 32, "used: 32 is not one of decode_steps"),
        ("heldout__steps__decode_steps", [128, 64], "decode_steps: do not rise"),
        ("heldout__steps__choosing_us", [9.0], "another length"),
        ("mix__code", 0.6, "mix: sums to 1.1"),
        ("mix", {"code": 1.0}, "robust.domains.prose: is not one of mix"),
        ("robust__worst", "law", "worst: 'law' is not one of domains"),
        ("robust__bound", 2.5, "bound: 2.5 is more than value 2"),
        ("robust__weights", {"code": 1.0}, "weights: are not those of domains"),
    ],
)
def test_fields_that_disagree_are_named(path: str, value: Any, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        PlacementDocument.model_validate(document(**{path: value}))
