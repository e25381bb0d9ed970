"""The verdict on a plan weighs its own interval."""

import pytest
from placements import placement

from placer.evaluation import _cure, _verdict
from placer.interval import Interval

TIMES = {"plan": 100.0, "frequency": 97.0, "uniform": 200.0}
COVERAGE = {"plan": 0.8, "frequency": 0.8, "uniform": 0.3}


@pytest.mark.parametrize(
    ("high", "says"), [(0.01, "within sampling error"), (-0.01, "the plan is not the best")]
)
def test_a_better_baseline_counts_only_beyond_sampling_error(high: float, says: str) -> None:
    gained = {"frequency": Interval(-0.03, -0.05, high), "uniform": Interval(1.0, 0.9, 1.1)}
    assert says in _verdict(TIMES, COVERAGE, 0.25, gained, "")


def test_a_trace_that_holds_the_mix_need_not_be_recorded_again() -> None:
    plan = placement({0: [0, 1]}, layers=[0], experts=4)
    times = {"plan": 100.0, "uniform": 100.0}
    said = _verdict(times, {"plan": 0.5}, 0.5, {}, _cure(plan, {"code": 0.7, "chat": 0.3}))
    assert said.endswith("; solve again with this trace and --mix code=0.7,chat=0.3")
    assert _cure(plan, {}) == "solve again with a trace of this traffic"
