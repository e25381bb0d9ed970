"""Layer choice: the layers that save most within the plan's room."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layerwise import layerwise

from placer.errors import BadInputError
from placer.exports.layer_choice import best_layers


def test_equal_layers_are_chosen_by_what_they_save() -> None:
    # Hot layers save 2, 8, 3 and 7 ms; 170 bytes hold two layers of 80. The step: 12 base + 3 + 1 + 4 + 1.
    choice = best_layers(layerwise(room=170), [80] * 4)
    assert choice.hot_layers == (2, 4)
    assert choice.decode_step_ms == pytest.approx(21)


def test_unequal_layers_are_a_knapsack() -> None:
    # Layer 2 alone saves 8 ms, but layers 3 and 4 fit in its place and save 10.
    choice = best_layers(layerwise(room=170), [80, 160, 80, 80])
    assert choice.hot_layers == (3, 4)


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    best_layers(layerwise(room=170), [80] * 4)
    assert capfd.readouterr() == ("", "")


def test_no_room_and_room_for_all() -> None:
    assert best_layers(layerwise(room=79), [80] * 4).hot_layers == ()
    assert best_layers(layerwise(room=320), [80] * 4).hot_layers == (1, 2, 3, 4)


def test_without_layer_times_the_step_is_not_stated() -> None:
    choice = best_layers(layerwise(room=170, predicted={"per_layer_ms": None}), [80] * 4)
    assert choice.decode_step_ms is None
    assert choice.reason == "the placement holds no per-layer times"


def test_an_older_placement_is_refused() -> None:
    with pytest.raises(BadInputError, match="whole_layers"):
        best_layers(layerwise(room=170, whole_layers=None, null_reasons={"whole_layers": "old"}), [80] * 4)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 200), min_size=4, max_size=4),
    cold=st.lists(st.floats(1, 50), min_size=4, max_size=4),
    room=st.integers(10, 500),
)
def test_no_other_set_that_fits_saves_more(sizes: list[int], cold: list[float], room: int) -> None:
    plan = layerwise(room=room, whole_layers={"all_cold_ms": cold})
    choice = best_layers(plan, sizes)
    rows = [layer - 1 for layer in choice.hot_layers]
    assert sum(sizes[row] for row in rows) <= room
    best = max(
        sum(cold[row] - 1 for row in rows)
        for count in range(5)
        for rows in combinations(range(4), count)
        if sum(sizes[row] for row in rows) <= room
    )
    assert sum(cold[row] - 1 for row in rows) == pytest.approx(best, rel=1e-6, abs=1e-4)
