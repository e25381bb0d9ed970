"""Fits on timings made from known coefficients, which they must find again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.cost import Provenance, Regime, SideCost
from placer.profiler.fit import call_us, fit_side, heldout_halves
from placer.profiler.timing.call import Call, Role, TimedCall
from placer.profiler.timing.grid import grid_calls, idle_calls, zipf_calls

SHAPE = ExpertShape(hidden_size=2048, expert_intermediate_size=768, experts=64, top_k=8)
BORDER = 32


def regime(least: int, most: int | None, **changes: object) -> Regime:
    fields = {
        "min_tokens": least,
        "max_tokens": most,
        "fixed_us": 100.0,
        "token_us": 2.0,
        "expert_us": 120.0,
        "tile": 1,
        "tile_us": 250.0,
        "residue_us": (0.0,),
        "heaviest_factor": 0.0,
        "max_rows": 256,
    }
    return Regime(**{**fields, **changes})  # type: ignore[arg-type]


ROW = regime(1, BORDER)
TILED = regime(BORDER + 1, None, tile=4, tile_us=374.0, residue_us=(0.0, 244.0, 279.0, 536.0))
"""Three rows cost 120 + 536 = 656, four 120 + 374 = 494: not monotone."""


def timings(truth: SideCost, border: int | None, noise: float = 0.0, seed: int = 0) -> list[TimedCall]:
    generator = np.random.default_rng(seed)
    calls: tuple[Call, ...] = (*grid_calls(SHAPE, border), *zipf_calls(SHAPE, border, seed=5))
    exact = [call_us(truth, np.array(call.rows), call.tokens) for call in calls]
    factors = np.exp(noise * generator.standard_normal(len(calls)))
    return [TimedCall(call, us * f) for call, us, f in zip(calls, exact, factors.tolist(), strict=True)]


def test_a_call_costs_its_fixed_part_its_tokens_and_its_experts() -> None:
    side = SideCost((TILED,), Provenance.FITTED)
    # 100 + 2·40 + (3 rows: 656) + (5 rows: 120 + 374 + 244)
    assert call_us(side, np.array([3, 0, 5]), 40) == pytest.approx(100 + 80 + 656 + 738)
    assert call_us(side, np.array([], dtype=int), 40) == pytest.approx(180)


def test_the_heaviest_expert_may_set_the_time() -> None:
    side = SideCost((regime(1, None, heaviest_factor=3.0),), Provenance.FITTED)
    # Heaviest: 120 + 250·4 = 1120, three times that is more than 1120 + 370.
    assert call_us(side, np.array([4, 1]), 10) == pytest.approx(100 + 20 + 3 * 1120)


def test_known_coefficients_are_found_again_in_both_regimes() -> None:
    cost, report = fit_side(timings(SideCost((ROW, TILED), Provenance.MEASURED), BORDER), border=BORDER)
    row, tiled = cost.regimes
    assert (row.min_tokens, row.max_tokens, tiled.min_tokens, tiled.max_tokens) == (1, 32, 33, None)
    assert row.tile == 1
    assert (row.fixed_us, row.token_us) == pytest.approx((100, 2), rel=1e-6)
    assert (row.expert_us, row.tile_us) == pytest.approx((120, 250), rel=1e-6)
    assert tiled.tile == 4
    assert tiled.tile_us == pytest.approx(374, rel=1e-6)
    assert tiled.residue_us == pytest.approx((0, 244, 279, 536), rel=1e-6)
    assert cost.provenance is Provenance.FITTED
    assert report.overall.mape < 1e-6


def test_a_call_without_rows_has_a_cost_of_its_own() -> None:
    # 20 us and half a microsecond per token below the border, 30 us and 0.1 beyond; the fit says 100 + 2·B.
    idle = [
        TimedCall(call, 20 + 0.5 * call.tokens if call.tokens <= BORDER else 30 + 0.1 * call.tokens)
        for call in idle_calls(BORDER)
    ]
    timed = timings(SideCost((ROW, TILED), Provenance.MEASURED), BORDER)
    cost, report = fit_side([*timed, *idle], border=BORDER)
    assert cost.idle_us(np.array([1, 32, 40])) == pytest.approx([20.5, 36.0, 34.0])
    assert cost.fixed_us(np.array([40])) == pytest.approx([180.0])
    assert report == fit_side(timed, border=BORDER)[1]


def test_without_such_calls_it_costs_what_every_call_does() -> None:
    side = SideCost((ROW,), Provenance.FITTED)
    assert side.idle_us(np.array([10])) == pytest.approx(side.fixed_us(np.array([10])))


def test_three_rows_may_cost_more_than_four() -> None:
    cost, _ = fit_side(timings(SideCost((ROW, TILED), Provenance.MEASURED), BORDER), border=BORDER)
    three, four = cost.regimes[1].rows_us(np.array([3, 4]))
    assert three == pytest.approx(656)
    assert four == pytest.approx(494)


def test_the_error_is_reported_on_calls_that_neither_fitted_nor_chose() -> None:
    timed = timings(SideCost((ROW, TILED), Provenance.MEASURED), BORDER, noise=0.02)
    _, report = fit_side(timed, border=BORDER)
    heldout = sum(t.call.role is Role.HELDOUT for t in timed)
    assert report.overall.calls == sum(r.reported.calls for r in report.regimes)
    assert abs(report.overall.calls - heldout / 2) <= 1
    # 2 % noise on the calls themselves: the mean magnitude of its error is 1.6 %.
    assert 0.005 < report.overall.mape < 0.03
    assert report.overall.p90_error > report.overall.mape > abs(report.overall.bias)


def test_the_error_is_also_told_by_how_many_experts_are_active() -> None:
    timed = timings(SideCost((ROW, TILED), Provenance.MEASURED), BORDER, noise=0.02)
    _, report = fit_side(timed, border=BORDER)
    assert sum(size.reported.calls for size in report.sizes) == report.overall.calls
    # Calls of a few and of all 64 experts are among them.
    assert report.sizes[0].min_active <= 8
    assert report.sizes[-1].max_active in (64, None)
    weighted = sum(size.reported.calls * size.reported.mape for size in report.sizes)
    assert weighted / report.overall.calls == pytest.approx(report.overall.mape)


def test_the_halves_choose_or_report_and_never_both() -> None:
    timed = timings(SideCost((ROW, TILED), Provenance.MEASURED), BORDER)
    halves = heldout_halves(timed, border=BORDER, seed=3)
    assert len(halves) == 2
    for (choose, report), inside in zip(halves, (range(1, 33), range(33, 10_000)), strict=True):
        assert {t.call for t in choose}.isdisjoint(t.call for t in report)
        assert abs(len(choose) - len(report)) <= 1
        assert all(t.call.tokens in inside for t in (*choose, *report))


def test_times_that_were_held_out_do_not_move_the_coefficients() -> None:
    timed = timings(SideCost((TILED,), Provenance.MEASURED), None)
    slower = [TimedCall(t.call, t.time_us * (1 + (t.call.role is Role.HELDOUT))) for t in timed]
    cost, report = fit_side(slower, border=None)
    assert cost.regimes[0].expert_us == pytest.approx(120, rel=1e-6)
    assert report.overall.bias == pytest.approx(-0.5, abs=0.01)


def test_many_threads_held_back_by_one_expert_are_recognised() -> None:
    truth = SideCost((regime(1, None, heaviest_factor=4.0, fixed_us=10.0),), Provenance.MEASURED)
    cost, report = fit_side(timings(truth, None), border=None, threads=16)
    assert cost.regimes[0].heaviest_factor == 4.0
    assert report.overall.mape < 0.02


def test_an_expert_is_not_held_back_by_more_threads_than_there_are() -> None:
    truth = SideCost((regime(1, None, heaviest_factor=4.0, fixed_us=10.0),), Provenance.MEASURED)
    for threads, largest in ((1, 0.0), (2, 2.0)):
        cost, _ = fit_side(timings(truth, None), border=None, threads=threads)
        assert cost.regimes[0].heaviest_factor <= largest


def test_one_thread_needs_no_heaviest_expert_term() -> None:
    timed = timings(SideCost((ROW, TILED), Provenance.MEASURED), BORDER, noise=0.03)
    cost, _ = fit_side(timed, border=BORDER)
    assert [r.heaviest_factor for r in cost.regimes] == [0.0, 0.0]


def test_rows_between_measured_residues_are_interpolated() -> None:
    # Sixteen rows to a tile; 11, 13 and 15 rows are not on the grid, and lie between their neighbours.
    truth = regime(1, None, tile=16, tile_us=900.0, residue_us=(0.0, *(700.0 + 10 * r for r in range(15))))
    cost, _ = fit_side(timings(SideCost((truth,), Provenance.MEASURED), None), border=None)
    (found,) = cost.regimes
    assert found.tile == 16
    assert found.rows_us(np.array([11, 13])) == pytest.approx(truth.rows_us(np.array([11, 13])), rel=0.01)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    noise=st.floats(0.0, 0.5),
    rows=st.lists(st.integers(0, 300), min_size=1, max_size=64),
    tokens=st.integers(1, 4096),
)
def test_no_prediction_is_negative(seed: int, noise: float, rows: list[int], tokens: int) -> None:
    truth = SideCost((ROW, TILED), Provenance.MEASURED)
    cost, _ = fit_side(timings(truth, BORDER, noise, seed), border=BORDER, seed=seed)
    assert call_us(cost, np.array(rows), tokens) >= 0
    for found in cost.regimes:
        assert np.all(found.rows_us(np.array(rows)) >= 0)


def test_too_few_calls_are_refused_with_a_cure() -> None:
    timed = timings(SideCost((ROW,), Provenance.MEASURED), None)[:6]
    with pytest.raises(BadInputError, match="6 calls to fit and 0 held out") as caught:
        fit_side(timed, border=None)
    assert "more seconds" in caught.value.hint


def test_the_largest_rows_measured_are_kept_so_that_larger_ones_count_as_extrapolated() -> None:
    cost, _ = fit_side(timings(SideCost((ROW, TILED), Provenance.MEASURED), BORDER), border=BORDER)
    assert [r.max_rows for r in cost.regimes] == [32, 256]
    assert cost.is_extrapolated(np.array([[[300]], [[200]]]), np.array([300, 300])).tolist() == [True, False]
