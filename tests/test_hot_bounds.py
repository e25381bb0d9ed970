"""Bounds on a layer's hot experts: what they make of the placements that a plan is compared with."""

import numpy as np

from placer.baselines import BASELINES
from placer.hot_bounds import HotBounds

# Two layers of four experts, the last two of each chosen most.
SHARE = np.array([[1, 2, 3, 4], [1, 2, 3, 4]])


def bounds(least: int, most: int) -> HotBounds:
    return HotBounds(np.full(2, least), np.full(2, most))


def hot(name: str, most: int, hot_total: int) -> list[list[int]]:
    mask = bounds(0, most).baseline(BASELINES[name], SHARE, hot_total)
    return [np.flatnonzero(row).tolist() for row in mask]


def test_uniform_stays_the_first_of_each_layer_where_all_would_fit() -> None:
    assert hot("uniform", most=2, hot_total=8) == [[0, 1], [0, 1]]


def test_frequency_takes_the_most_chosen() -> None:
    assert hot("frequency", most=2, hot_total=8) == [[2, 3], [2, 3]]


def test_no_layer_exceeds_its_most() -> None:
    for name in BASELINES:
        assert all(len(row) <= 3 for row in hot(name, most=3, hot_total=8))
