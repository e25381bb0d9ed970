"""Public measured points are reproduced from datasheets alone, and docs/published.md says what the command prints."""

import re
from pathlib import Path

import pytest

from placer.examples.published_point import PublishedPoint, published_points, published_strategies
from placer.examples.published_points import (
    Compared,
    Strategies,
    compared_points,
    error,
    points_table,
    strategies_error,
    strategies_table,
    worst_gain_error,
)
from placer.examples.published_prediction import predicted_strategies

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "published.md"
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")


@pytest.fixture(scope="module")
def strategies() -> Strategies:
    return predicted_strategies(tuple(published_strategies()))


@pytest.fixture(scope="module")
def compared() -> list[Compared]:
    return compared_points(published_points())


def test_strategies_come_in_the_measured_order_at_every_share(strategies: Strategies) -> None:
    """Two strategies whose measured speeds differ by less than 5 % may swap: `uniform` and `random`, alike by chance,
    differ by up to 9.6 % in the table.
    """
    for percent, measured in published_strategies().items():
        for slower, faster in [
            (a, b) for a in measured for b in measured if measured[b] > 1.05 * measured[a]
        ]:
            if {slower, faster} != {"uniform", "random"}:
                assert strategies[percent][faster] > strategies[percent][slower], (percent, slower, faster)
        if 0 < percent < 100:
            assert max(strategies[percent], key=strategies[percent].__getitem__) == "frequency"


def test_gains_are_within_ten_percentage_points_and_speeds_within_a_few_per_cent(
    strategies: Strategies,
) -> None:
    measured = published_strategies()
    assert worst_gain_error(measured, strategies) < 10.0
    assert strategies_error(measured, strategies) < 0.05
    for percent, row in strategies.items():
        assert row == pytest.approx(measured[percent], rel=0.08)


def test_points_that_only_check_are_no_worse_than_those_that_tuned(compared: list[Compared]) -> None:
    """Two of the 27 were measured on kernels of a model's first week; the others are off by less than 30 %, but one."""
    usual = [each for each in compared if each.point.number not in (13, 14)]
    assert error([each for each in usual if each.point.tuned]) < 0.12
    assert error([each for each in usual if not each.point.tuned]) < 0.15
    assert [each.point.number for each in usual if not 0.7 < each.speed < 1.3] == [27]


def test_speed_is_the_prediction_over_the_measurement_whatever_the_unit() -> None:
    (first, second) = published_points()[:2]
    assert (first.kind, first.measured) == ("tpot_ms", 9.6)
    assert Compared(first, 4.8).speed == pytest.approx(2.0)
    assert Compared(second, second.measured / 2).speed == pytest.approx(0.5)
    assert error([Compared(first, 4.8), Compared(second, second.measured / 2)]) == pytest.approx(1.0)


@pytest.mark.parametrize("point", published_points(), ids=lambda point: str(point.number))
def test_a_point_names_its_hardware_and_where_it_stands(point: PublishedPoint) -> None:
    assert point.gpu
    assert point.source.startswith(("github.com/", "ktransformers doc/"))
    assert bool(point.cpu) == bool(point.method) == (point.threads is not None)


def test_the_document_holds_what_the_command_prints(compared: list[Compared], strategies: Strategies) -> None:
    written = DOCUMENT.read_text(encoding="utf-8")
    for printed in (strategies_table(published_strategies(), strategies), points_table(compared)):
        lines = printed.splitlines()
        start = written.splitlines().index(lines[0])
        for line, kept in zip(lines, written.splitlines()[start:], strict=False):
            assert NUMBER.sub("#", kept) == NUMBER.sub("#", line)
            figures = [[float(number) for number in NUMBER.findall(text)] for text in (kept, line)]
            assert figures[0] == pytest.approx(figures[1], rel=0.02, abs=0.3)
