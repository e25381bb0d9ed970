"""The verdict on a plan weighs its own interval."""

import pytest

from placer.evaluation import _verdict
from placer.interval import Interval

TIMES = {"plan": 100.0, "frequency": 97.0, "uniform": 200.0}
COVERAGE = {"plan": 0.8, "frequency": 0.8, "uniform": 0.3}


@pytest.mark.parametrize(
    ("high", "says"), [(0.01, "within sampling error"), (-0.01, "the plan is not the best")]
)
def test_a_better_baseline_counts_only_beyond_sampling_error(high: float, says: str) -> None:
    gained = {"frequency": Interval(-0.03, -0.05, high), "uniform": Interval(1.0, 0.9, 1.1)}
    assert says in _verdict(TIMES, COVERAGE, 0.25, gained)
