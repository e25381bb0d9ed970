"""Why an expert is where it is, on a placement whose values a reader can rank."""

import re
from dataclasses import replace

import pytest
from placements import placement
from rich.console import Console

from placer.answer.console import print_answer
from placer.answer.detail import Detail
from placer.answer.explanation import SHOWN, explanation_answer
from placer.errors import BadInputError
from placer.explanation import ExpertPlace, Explanation, explain
from placer.placement import PlacementDocument

GIB = 2**30
VALUES = {"3": [9.0, 1.0, 4.0], "4": [2.0, 8.0, 3.0]}


HOT = {3: [0, 2], 4: [1]}


def worked(hot: dict[int, list[int]] = HOT, **changes: object) -> PlacementDocument:
    """Two layers of three experts; 3/0, 3/2 and 4/1 hot. An expert takes 256 MiB, a KV token 64 bytes."""
    known = {
        "expert_bytes_per_gpu": GIB // 4,
        "price_us_per_gib": 14.0,
        "tokens_per_s_per_gib": 5.0,
        "value_us": VALUES,
    }
    return placement(hot, layers=[3, 4], experts=3, top_k=1, **{"sensitivity": known, **changes})


def test_a_hot_expert_has_its_value_its_rank_and_its_replacement() -> None:
    found = explain(worked(), layer=3, expert=2)
    (place,) = found.places
    assert (place.hot, place.value_us, place.rank) == (True, 4.0, 3)
    # 4 us for a quarter of a GiB.
    assert place.value_us_per_gib == 16.0
    assert found.expert_kv_tokens == GIB // 4 // 64
    # The best of the cold ones is 4/2 with 3 us, the least of the hot ones is 3/2 itself.
    assert found.best_cold is not None
    assert (found.best_cold.layer, found.best_cold.expert) == (4, 2)
    assert found.least_hot is not None
    assert (found.least_hot.layer, found.least_hot.expert) == (3, 2)


def test_experts_change_places_only_where_limits_and_pins_let_them() -> None:
    # 3/2 is the best cold expert and 4/1 the hot one worth least, but layers hold one hot expert at most.
    full = worked({3: [0], 4: [1]}, hot_per_layer={"min": 0, "max": 1})
    hot, cold = explain(full, layer=4, expert=1).best_cold, explain(full, layer=3, expert=2).least_hot
    assert hot is not None
    assert (hot.layer, hot.expert) == (4, 2)
    assert cold is not None
    assert (cold.layer, cold.expert) == (3, 0)
    pinned = explain(worked({3: [0], 4: []}, pinned={"4": "none"}), layer=4, expert=1)
    assert pinned.least_hot is None
    assert "pins and limits" in pinned.document()["null_reasons"]["least_hot"]


def test_a_layer_lists_its_experts_by_value() -> None:
    found = explain(worked(), layer=4)
    assert [place.expert for place in found.places] == [1, 2, 0]
    assert [place.rank for place in found.places] == [2, 4, 5]
    assert (found.hot, found.experts) == (1, 3)


@pytest.mark.parametrize(
    ("layer", "expert", "said"),
    [
        (0, None, "layer 0 is not a MoE layer"),
        (3, 3, "expert 3 is not one of the 3"),
        (3, -1, "expert -1 is not one of the 3"),
    ],
)
def test_what_is_not_there_is_named(layer: int, expert: int | None, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        explain(worked(), layer, expert)


def test_a_plan_without_a_trace_cannot_tell_experts_apart() -> None:
    untraced = worked(sensitivity=None, null_reasons={"sensitivity": "no trace was given"})
    with pytest.raises(BadInputError, match="no trace was given"):
        explain(untraced, 3)


def test_values_must_cover_every_expert() -> None:
    short = {
        "expert_bytes_per_gpu": 1,
        "price_us_per_gib": None,
        "value_us": {"3": [1.0], "4": [1.0, 2.0, 3.0]},
    }
    with pytest.raises(ValueError, match=r"sensitivity.value_us.3: has 1 entries for 3 experts"):
        worked(sensitivity=short)


def test_a_layer_of_many_experts_is_shown_whole_with_v_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """100 experts, 60 of them hot: the most valuable, and those around the border."""
    places = tuple(ExpertPlace(3, at, at < 60, 100.0 - at, 400.0 - 4 * at, at + 1) for at in range(100))
    found = replace(explain(worked(), 3), experts=100, hot=60, places=places)
    shown = {}
    for detail in (Detail.USUAL, Detail.FULL):
        print_answer(explanation_answer(found), detail)
        shown[detail] = [
            line for line in capsys.readouterr().err.splitlines() if re.search(" (hot|cold) ", line)
        ]
    assert len(shown[Detail.USUAL]) == SHOWN // 2 + SHOWN + 1
    assert len(shown[Detail.FULL]) == 100


SWAPPED = {3: [0, 1, 2], 4: [1]}
UNTARGETED = {"prompt_tokens": 512, "output_tokens": 128, "concurrency": 8}


def lines(found: Explanation) -> str:
    console = Console(width=200, force_terminal=False)
    with console.capture() as capture:
        console.print(explanation_answer(found))
    return capture.get()


def test_an_exchange_that_would_save_time_says_why_it_was_not_made() -> None:
    # 4/0 would save 2 us where it is cold, 3/1 saves 1 us where it is hot; the bound is 2 us below the plan's 100.
    solver = {"name": "structured", "status": "optimal", "gap": 0.02, "seconds": 1.0}
    proven = {**solver, "objective_us": 100.0, "bound_us": 98.0}
    document = worked(SWAPPED, workload=UNTARGETED, solver=proven)
    found = explain(document, layer=4, expert=0)
    assert (found.exchange_us, found.open_us, found.not_only_values) == (1.0, 2.0, None)
    said = lines(found)
    assert "changing places would save 1.000 µs per output token (1%): less than the 2.000 µs (2%)" in said
    assert "that the proven gap leaves open" in said
    # The same of the hot one, whose best replacement is 4/2.
    assert explain(document, layer=3, expert=1).exchange_us == 2.0
    # Nothing is gained by giving up 3/0.
    found = explain(document, layer=3, expert=0)
    assert found.exchange_us is None
    assert "changing places" not in lines(found)
    assert explain(document, layer=3).exchange_us is None


def test_an_exchange_that_saves_more_than_the_gap_names_what_else_was_decided_by() -> None:
    solver = {"name": "structured", "status": "optimal", "gap": 0.001, "seconds": 1.0}
    proven = {**solver, "objective_us": 100.0, "bound_us": 99.9}
    assert "do not add up" in lines(
        explain(worked(SWAPPED, workload=UNTARGETED, solver=proven), layer=4, expert=0)
    )
    held = {"coverage": 0.5, "uniform_null": 0.5, "verdict": "helps", "chosen": "uniform"}
    document = worked(SWAPPED, workload=UNTARGETED, solver=proven, heldout=held)
    assert "the plan is the baseline 'uniform'" in lines(explain(document, layer=4, expert=0))
    targeted = worked(SWAPPED, solver=proven)
    assert "has to keep the latency targets" in lines(explain(targeted, layer=4, expert=0))
