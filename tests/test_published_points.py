"""Public measured points are reproduced from datasheets alone, and docs/published.md says what the command prints."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from placer.examples.published_point import PublishedPoint, published_points, published_strategies
from placer.examples.published_points import (
    Compared,
    Strategies,
    compared_points,
    error,
    gains_table,
    pair_gains,
    points_table,
    strategies_error,
    strategies_table,
    worst_gain_error,
)
from placer.examples.published_prediction import predicted, predicted_strategies

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
    usual = [each for each in compared if each.point.number not in (13, 14) and not each.point.blind]
    assert error([each for each in usual if each.point.tuned]) < 0.12
    assert error([each for each in usual if not each.point.tuned]) < 0.15
    assert [each.point.number for each in usual if not 0.7 < each.speed < 1.3] == [27]


def test_points_predicted_blind_are_off_by_less_than_a_third_where_the_command_is_known(
    compared: list[Compared],
) -> None:
    """Of 32 to 34 the command is not known in full: they are up to 1.9 times as fast as predicted."""
    blind = [each for each in compared if each.point.blind]
    assert [each.point.number for each in blind] == [28, 29, 30, 31, 32, 33, 34, 35]
    assert [each.point.number for each in blind if not 0.75 < each.speed < 1.33] == [32, 33, 34]
    assert all(each.speed > 1 / 1.9 for each in blind)


def test_a_change_gains_what_was_measured_within_ten_points_or_so(compared: list[Compared]) -> None:
    """2 A100 were slower than one on kernels of a model's first week; 8 H20 gain ten points less than predicted."""
    gained = pair_gains(compared)
    off = {pair: 100 * abs(predicted - measured) for pair, (predicted, measured) in gained.items()}
    assert [pair for pair, points in off.items() if points >= 8.0] == [(28, 29), (13, 14)]
    assert off[28, 29] < 10.5
    assert [pair for pair, (predicted, measured) in gained.items() if predicted * measured < 0] == [(13, 14)]


def test_a_run_of_some_requests_ends_in_a_round_of_the_rest() -> None:
    """100 requests of 32 clients are three rounds of 32 and one of 4, in which the server is slower."""
    point = next(each for each in published_points() if each.number == 28)
    assert (point.running, point.requests) == (32, 100)
    full, rest = (predicted(replace(point, running=running, requests=None)) for running in (32, 4))
    assert rest < full / 2
    assert predicted(point) == pytest.approx(100 / (96 / full + 4 / rest))
    whole = replace(point, requests=96)
    assert predicted(whole) == pytest.approx(full)


def test_more_gpus_gain_as_much_for_eight_clients_as_a_chart_without_commands_shows() -> None:
    """One and eight L20 serve DeepSeek-V3 in four bits; which experts are hot is a guess, and one client is not met."""
    blind = next(each for each in published_points() if each.number == 31)
    eight = replace(blind, prompt_tokens=128, output_tokens=512)
    one = replace(eight, tp=1, hot=0, threads=63)
    gains = [predicted(replace(eight, running=n)) / predicted(replace(one, running=n)) - 1 for n in (1, 8)]
    assert gains == pytest.approx([1.61, 2.83], abs=0.03)


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
    for printed in (
        strategies_table(published_strategies(), strategies),
        points_table(compared),
        gains_table(compared),
    ):
        lines = printed.splitlines()
        start = written.splitlines().index(lines[0])
        for line, kept in zip(lines, written.splitlines()[start:], strict=False):
            assert NUMBER.sub("#", kept) == NUMBER.sub("#", line)
            figures = [[float(number) for number in NUMBER.findall(text)] for text in (kept, line)]
            assert figures[0] == pytest.approx(figures[1], rel=0.02, abs=0.3)
