"""What is said of a server that requests outrun: the same words on the terminal, in a report and in an evaluation."""

from typing import Any

import pytest
from placements import figures, placement_dict

from placer.answer.serving import serving_lines
from placer.open_loop import falls_behind, open_loop_advice, open_loop_sentence, ttft_without_value
from placer.placement import PlacementDocument
from placer.predicted_figures import FALLS_BEHIND
from placer.reports.baseline import placement_rows


def open_loop(arrivals_per_s: float, *, behind: bool, **workload: Any) -> PlacementDocument:
    """A server that can finish 4 requests per second."""
    fields = placement_dict({1: [0]}, layers=[1], experts=4)
    loop = {"arrivals_per_s": arrivals_per_s, "capacity_per_s": 4.0, "falls_behind": behind}
    fields["predicted"] |= {"open_loop": loop}
    fields["baselines"] = {"uniform": figures()}
    fields["workload"] |= workload
    reasons = {"predicted.ttft_ms": FALLS_BEHIND} if behind else {"predicted.ttft_ms": "not replayed"}
    fields["null_reasons"] = {**fields.get("null_reasons", {}), **reasons}
    return PlacementDocument.model_validate(fields)


@pytest.mark.parametrize(
    ("arriving", "behind", "said"),
    [
        (3.0, False, "3.00 requests/s arrive, 75.0% of the 4.00 requests/s that it can finish"),
        (
            3.96,
            True,
            "the server falls behind: 3.96 requests/s arrive and it can finish 4.00",
        ),
        (
            6.0,
            True,
            "the server falls behind: 6.00 requests/s arrive and it can finish 4.00",
        ),
    ],
)
def test_arrivals_beside_what_can_be_finished(arriving: float, behind: bool, said: str) -> None:
    document = open_loop(arriving, behind=behind, rate_per_s=arriving)
    assert falls_behind(document) is behind
    sentence = open_loop_sentence(document)
    assert sentence is not None
    assert sentence.startswith(said)
    assert ("waiting grows for as long as they arrive" in sentence) is behind
    assert sentence in str(serving_lines(document)[0])


def test_a_ttft_without_a_steady_value_grows_and_is_not_unknown() -> None:
    behind = open_loop(6.0, behind=True, rate_per_s=6.0)
    assert ttft_without_value(behind) == "grows"
    rows = placement_rows(behind)
    assert isinstance(rows, tuple)
    assert [row.ttft_p95 for row in rows] == ["grows", "grows"]
    assert ttft_without_value(open_loop(3.0, behind=False, rate_per_s=3.0)) == "unknown"


def test_given_arrivals_have_latencies_of_their_own() -> None:
    document = open_loop(6.0, behind=True, arrivals={"requests": 300, "span_s": 50.0})
    sentence = open_loop_sentence(document)
    assert sentence is not None
    assert sentence.endswith("latencies are of these 300 requests, and more of them would wait longer")


def test_a_closed_loop_has_no_sentence() -> None:
    document = PlacementDocument.model_validate(placement_dict({1: [0]}, layers=[1], experts=4))
    assert open_loop_sentence(document) is None
    assert not falls_behind(document)


def test_what_would_be_kept_up_with_is_advised() -> None:
    # Up to 97 % of the four that it can finish.
    assert str(open_loop_advice(open_loop(6.0, behind=True, rate_per_s=6.0))).startswith(
        "--rate of at most 3.88"
    )
    given = open_loop(6.0, behind=True, arrivals={"requests": 300, "span_s": 50.0})
    assert "at most 3.88 per second" in str(open_loop_advice(given))
    assert open_loop_advice(open_loop(3.0, behind=False, rate_per_s=3.0)) is None
