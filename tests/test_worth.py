"""What more room is worth: a price where memory binds, what limits the plan where it does not."""

from typing import Any

import numpy as np
from placements import placement
from small_problems import problem

from placer.answer.worth import worth_sentence
from placer.placement import PlacementDocument
from placer.sensitivity import sensitivity
from placer.units import GIB


def planned(price_us_per_gib: float | None, **changes: Any) -> PlacementDocument:
    known = {
        "expert_bytes_per_gpu": GIB // 10,
        "price_us_per_gib": price_us_per_gib,
        "tokens_per_s_per_gib": price_us_per_gib,
        "value_us": {"0": [5.0, 1.0]},
    }
    if price_us_per_gib is None:
        reasons = {"sensitivity.price_us_per_gib": "none", "sensitivity.tokens_per_s_per_gib": "none"}
        changes["null_reasons"] = {**placement({0: [0]}, layers=[0], experts=2).null_reasons, **reasons}
    return placement({0: [0]}, layers=[0], experts=2, sensitivity=known, **changes)


def test_where_memory_binds_a_gib_has_its_price() -> None:
    said = worth_sentence(planned(30.0))
    assert said is not None
    assert said.startswith("a GiB more per GPU saves 30.00 µs per output token (about 30.0 tokens/s)")


def test_no_room_is_said_to_save_more_than_the_objective() -> None:
    """400 µs a GiB of an objective of 100 µs: a tenth of a GiB, one expert, saves 40."""
    said = worth_sentence(planned(400.0))
    assert said is not None
    assert said.startswith("room for one more expert per GPU saves 40.00 µs")


def test_where_a_limit_binds_it_is_named_in_place_of_memory() -> None:
    said = worth_sentence(planned(0.0, hot_per_layer={"min": 0, "max": 1}))
    assert (
        said == "more memory would not help this plan: memory is not what limits it, --max-hot-per-layer 1 is"
    )


def test_a_solver_without_a_multiplier_says_nothing() -> None:
    assert worth_sentence(planned(None)) is None


def test_a_budget_that_is_not_used_up_has_no_price() -> None:
    """One of two experts of a byte is hot: a budget of one byte binds, of two does not."""
    hot = np.array([[True, False]])

    def price(budget_bytes: int) -> float | None:
        case = problem([[[1.0, 1.0]]], [[[3.0, 2.0]]], budget_bytes, max_hot=np.array([1]))
        return sensitivity(case, hot, 0.5).price_us_per_gib

    assert price(1) == 0.5 * GIB
    assert price(2) == 0.0
