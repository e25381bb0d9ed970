"""Factors found from figures: worked values, what is not identified, and recovery of any factor that was put in."""

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placer.profiler.factor import UNCALIBRATED, FactorName, Factors
from placer.profiler.factor_fit import FittedFigure, fit_factors


def step_ms(cold: float, hot: float, base: float) -> Callable[[Factors], float]:
    """A step with one layer whose sides take these times."""
    return lambda f: f.base * base + max(f.cold * cold, f.hot * hot) + f.step_us / 1e3


def figure(truth: Factors, cold: float, hot: float, base: float) -> FittedFigure:
    predicted = step_ms(cold, hot, base)
    return FittedFigure(predicted(truth), predicted)


def test_one_figure_identifies_one_factor_the_one_that_it_depends_on_most() -> None:
    # 20 + 80 ms predicted, 112 ms measured: cold 1.15, or base 1.6, or 12 ms per step.
    found = fit_factors([FittedFigure(112.0, step_ms(80.0, 10.0, 20.0))], step_scale_us=112e3)
    assert found.factors.cold == pytest.approx(92 / 80, rel=1e-4)
    assert found.factors.changed == (FactorName.COLD,)
    # 12 ms per step, or 60 % more base, would do as well.
    assert [each.changed for each in found.alternatives] == [(FactorName.BASE,), (FactorName.STEP,)]
    assert found.alternatives[0].base == pytest.approx(1.6, rel=1e-3)
    assert found.alternatives[1].step_us == pytest.approx(12e3, rel=1e-3)
    assert "fitted to 1 figure" in found.reasons[FactorName.COLD]
    assert "hardly depend on it" in found.reasons[FactorName.HOT]
    assert "hardly depend on it" in found.reasons[FactorName.TRANSFER]


def test_a_factor_can_be_asked_for() -> None:
    found = fit_factors(
        [FittedFigure(112.0, step_ms(20.0, 10.0, 80.0))], step_scale_us=112e3, names=[FactorName.BASE]
    )
    assert found.factors.base == pytest.approx(92 / 80, rel=1e-4)
    assert "not to be fitted" in found.reasons[FactorName.COLD]


def test_figures_that_agree_change_nothing() -> None:
    found = fit_factors([figure(UNCALIBRATED, 80.0, 10.0, 20.0)], step_scale_us=1e5)
    assert found.factors == UNCALIBRATED
    assert "agree with the prediction" in found.reasons[FactorName.COLD]


def test_no_figure_changes_nothing() -> None:
    assert fit_factors([], step_scale_us=1e5).factors == UNCALIBRATED


def test_two_figures_tell_two_factors_apart() -> None:
    truth = Factors(cold=1.2, base=0.8)
    found = fit_factors([figure(truth, 90.0, 5.0, 10.0), figure(truth, 20.0, 5.0, 80.0)], step_scale_us=1e5)
    assert found.factors.cold == pytest.approx(1.2, rel=1e-3)
    assert found.factors.base == pytest.approx(0.8, rel=1e-3)
    assert "cannot tell more than 2 factors apart" in found.reasons[FactorName.STEP]


def test_two_figures_that_move_alike_tell_one_factor() -> None:
    truth = Factors(cold=1.2, base=0.8)
    found = fit_factors([figure(truth, 90.0, 5.0, 10.0), figure(truth, 91.0, 5.0, 10.0)], step_scale_us=1e5)
    assert len(found.factors.changed) == 1


def test_no_factor_is_off_tenfold() -> None:
    # Only the cold side could explain it, at ×50.
    found = fit_factors(
        [FittedFigure(5000.0, step_ms(100.0, 0.1, 0.1))], step_scale_us=5e6, names=[FactorName.COLD]
    )
    assert found.factors == UNCALIBRATED


@given(
    st.sampled_from([FactorName.COLD, FactorName.HOT, FactorName.BASE]),
    st.floats(0.4, 2.5),
    st.lists(st.floats(5.0, 95.0), min_size=2, max_size=6),
)
def test_a_factor_that_was_put_in_comes_out(name: FactorName, value: float, shares: list[float]) -> None:
    truth = UNCALIBRATED.with_value(name, value)
    # Figures of different share inside the experts, none hidden behind the other side.
    cold, hot = (100.0, 1.0) if name is not FactorName.HOT else (1.0, 100.0)
    sizes = [(cold * share / 100, hot * share / 100, 100.0 - share) for share in shares]
    assume(min(shares) < 40 and max(shares) > 60)
    found = fit_factors([figure(truth, *each) for each in sizes], step_scale_us=1e5)
    worst = max(abs(figure(truth, *each).log_error(found.factors)) for each in sizes)
    assert worst < 0.03
    if abs(value - 1) > 0.1:
        assert found.factors.value(name) == pytest.approx(value, rel=0.03)
