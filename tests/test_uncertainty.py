"""Bands around the parts of a cost model."""

from dataclasses import replace

import pytest
from profiles import profile

from placer.profiler.factor import Factors
from placer.profiler.uncertainty import DATASHEET_GPU_BAND, Uncertainty, error_band


def test_a_prediction_that_is_a_quarter_off() -> None:
    # 125 predicted of 100 measured: the time is 1 / 1.25 of the prediction; 75 of 100: 1 / 0.75 of it.
    assert error_band(0.25) == pytest.approx((0.8, 4 / 3))
    assert error_band(0.0) == (1.0, 1.0)


def test_an_error_beyond_measure_still_has_a_band() -> None:
    low, high = error_band(3.0)
    assert 0 < low < 1 < high < 100


def test_a_timed_side_takes_its_held_out_error_and_a_datasheet_its_own_band() -> None:
    made = profile()
    report = made.cpu.report
    off = replace(report, overall=replace(report.overall, p90_error=0.25))
    found = replace(made, cpu=replace(made.cpu, report=off)).uncertainty
    assert found.cold == pytest.approx((0.8, 4 / 3))
    assert found.hot == found.base == DATASHEET_GPU_BAND
    assert "25.0%" in found.reasons["cold"]
    assert "datasheet" in found.reasons["hot"]
    timed = replace(made, gpu=replace(made.gpu, kernel=replace(made.cpu, report=off))).uncertainty
    assert timed.hot == pytest.approx((0.8, 4 / 3))


def test_all_parts_are_off_together() -> None:
    found = Uncertainty((0.9, 1.1), (0.8, 1.2), (0.7, 1.3), {})
    low, high = DATASHEET_GPU_BAND
    assert found.fastest == Factors(cold=0.9, hot=0.8, base=0.7, transfer=low)
    assert found.slowest == Factors(cold=1.1, hot=1.2, base=1.3, transfer=high)
