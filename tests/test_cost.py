"""The cost model's form, by hand."""

from dataclasses import replace

import numpy as np

from placer.profiler.cost import CostModel, GpuRates, Provenance, Regime, SideCost
from placer.profiler.factor import Factors

TILED = Regime(
    min_tokens=65,
    max_tokens=None,
    fixed_us=10.0,
    token_us=0.5,
    expert_us=100.0,
    tile=4,
    tile_us=300.0,
    residue_us=(0.0, 240.0, 250.0, 330.0),
    heaviest_factor=0.0,
    max_rows=64,
)
ROWS = Regime(1, 64, 0.0, 0.0, 100.0, 1, 250.0, (0.0,), 0.0, 64)
SIDE = SideCost((ROWS, TILED), Provenance.FITTED)


def test_a_tiled_kernel_is_not_monotone() -> None:
    # 3 rows: 100 + 330; 4 rows: 100 + 300; 5 rows: 100 + 300 + 240.
    assert TILED.rows_us(np.array([0, 1, 3, 4, 5, 8])).tolist() == [0.0, 340.0, 430.0, 400.0, 640.0, 700.0]


def test_the_tokens_of_the_call_choose_the_regime() -> None:
    rows = np.array([[[4, 0]], [[4, 0]]])
    assert SIDE.expert_us(rows, np.array([64, 65])).tolist() == [[[1100.0, 0.0]], [[400.0, 0.0]]]
    assert SIDE.fixed_us(np.array([64, 65])).tolist() == [0.0, 10.0 + 0.5 * 65]


def test_rows_beyond_the_measured_range_are_extrapolated() -> None:
    rows = np.array([[[64, 0]], [[65, 0]]])
    assert SIDE.is_extrapolated(rows, np.array([1, 1])).tolist() == [False, True]


def test_a_floor_is_the_least_cost_of_an_expert_with_rows() -> None:
    roofline = Regime(1, None, 5.0, 0.0, 0.0, 1, 2.0, (0.0,), 0.0, 1 << 16, floor_us=30.0)
    assert roofline.rows_us(np.array([0, 1, 15, 20])).tolist() == [0.0, 30.0, 30.0, 40.0]


def test_tokens_beyond_the_largest_timed_call_are_extrapolated() -> None:
    side = SideCost((replace(ROWS, max_tokens=None, timed_tokens=1024),), Provenance.FITTED)
    rows = np.array([[[8, 0]], [[8, 0]]])
    assert side.is_extrapolated(rows, np.array([1024, 1025])).tolist() == [False, True]


def test_a_factor_scales_every_time_and_nothing_else() -> None:
    twice = SIDE.scaled(2.0)
    rows, tokens = np.array([[[4, 3]], [[4, 3]]]), np.array([64, 65])
    assert np.array_equal(twice.expert_us(rows, tokens), 2 * SIDE.expert_us(rows, tokens))
    assert np.array_equal(twice.fixed_us(tokens), 2 * SIDE.fixed_us(tokens))
    assert [regime.max_rows for regime in twice.regimes] == [64, 64]
    assert replace(ROWS, floor_us=1000.0).scaled(2.0).floor_us == 2000.0
    # What was not timed stays unknown.
    assert ROWS.scaled(2.0).idle_us is None
    assert replace(ROWS, idle_us=20.0).scaled(2.0).idle_us == 40.0


def test_a_calibrated_cost_model_scales_each_part_by_its_own_factor() -> None:
    rates = GpuRates(1e12, 1e14, 10.0, 30.0, 0.5, Provenance.DATASHEET)
    found = CostModel(SIDE, SIDE, rates).calibrated(
        Factors(cold=2.0, hot=3.0, base=0.5, transfer=4.0, step_us=7.0)
    )
    assert found.cold.regimes[0].tile_us == 500.0
    assert found.hot.regimes[0].tile_us == 750.0
    assert (found.rates.transfer_call_us, found.rates.transfer_token_us) == (120.0, 2.0)
    assert (found.base_factor, found.step_us) == (0.5, 7.0)
    # What the GPU sustains is measured or a datasheet's: it stays.
    assert (found.rates.bytes_per_s, found.rates.layer_call_us) == (1e12, 10.0)
