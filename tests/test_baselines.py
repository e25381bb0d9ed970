"""The baselines: the runtime's own strategies and equal N by frequency, on hand-sized shares."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.baselines import BASELINES, within_bytes

SHARE = np.array([[1, 9, 8, 2], [5, 4, 7, 0]])


def hot(name: str, hot_total: int) -> list[list[int]]:
    """Hot expert ids per layer."""
    return [np.flatnonzero(row).tolist() for row in BASELINES[name](SHARE, hot_total)]


def test_names_are_those_of_a_placement() -> None:
    assert list(BASELINES) == ["frequency", "frequency_per_layer", "uniform", "front_loading", "random"]


def test_frequency_is_one_ranking_over_all_layers() -> None:
    assert hot("frequency", 3) == [[1, 2], [2]]
    assert hot("frequency", 5) == [[1, 2], [0, 1, 2]]


def test_frequency_gives_equals_to_the_earlier_layer_and_smaller_id() -> None:
    assert BASELINES["frequency"](np.ones((2, 3)), 4).tolist() == [[True, True, True], [True, False, False]]


def test_frequency_per_layer_has_equal_n_and_drops_the_remainder() -> None:
    assert hot("frequency_per_layer", 4) == [[1, 2], [0, 2]]
    assert hot("frequency_per_layer", 5) == hot("frequency_per_layer", 4)


def test_uniform_takes_the_first_experts_and_gives_the_remainder_to_the_first_layers() -> None:
    assert hot("uniform", 5) == [[0, 1, 2], [0, 1]]


def test_front_loading_fills_layer_after_layer() -> None:
    assert hot("front_loading", 5) == [[0, 1, 2, 3], [0]]


def test_random_is_the_same_every_time() -> None:
    assert hot("random", 3) == hot("random", 3)
    assert BASELINES["random"](np.zeros((48, 128)), 700).sum() == 700


@pytest.mark.parametrize("name", BASELINES)
def test_a_total_beyond_all_experts_is_all_and_below_zero_is_none(name: str) -> None:
    assert BASELINES[name](SHARE, 99).all()
    assert not BASELINES[name](SHARE, -1).any()


def test_within_bytes_spends_a_budget_on_layers_of_different_sizes() -> None:
    # Experts of layer 0 take 10 bytes, of layer 1 take 30: frequency adds 9, 8, 7 (50 bytes), then 5 (80).
    expert_bytes = np.array([10, 30])
    by_frequency = BASELINES["frequency"]
    assert within_bytes(by_frequency, SHARE, 79, expert_bytes).sum() == 3
    assert within_bytes(by_frequency, SHARE, 80, expert_bytes).sum() == 4
    assert not within_bytes(by_frequency, SHARE, 9, expert_bytes).any()
    assert within_bytes(by_frequency, SHARE, 160, expert_bytes).all()


@given(
    st.sampled_from(sorted(BASELINES)),
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(0, 60),
    st.integers(0, 2**32 - 1),
)
def test_a_larger_total_keeps_every_hot_expert(name: str, L: int, E: int, hot_total: int, seed: int) -> None:
    share = np.random.default_rng(seed).integers(0, 5, (L, E))
    smaller, larger = BASELINES[name](share, hot_total), BASELINES[name](share, hot_total + 1)
    assert not (smaller & ~larger).any()
    expected = min(hot_total, L * E)
    assert smaller.sum() == (expected // L * L if name == "frequency_per_layer" else expected)


@given(st.integers(0, 24), st.integers(0, 2**32 - 1))
def test_no_other_set_of_that_size_covers_more_than_frequency(hot_total: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    share = random.integers(0, 50, (4, 6))
    covered = share[BASELINES["frequency"](share, hot_total)].sum()
    assert covered == np.sort(share, axis=None)[::-1][:hot_total].sum()
