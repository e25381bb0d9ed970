"""The time left of a command, on made-up clocks."""

import pytest

from placer.cli.pace import Pace


def told(*reports: tuple[float, float], start_s: float = 0.0) -> float | None:
    """What is left after ``reports`` of a share at a time."""
    pace, left_s = Pace(start_s), None
    for now_s, share in reports:
        left_s = pace.left_s(share, now_s)
    return left_s


def steady(from_s: float, until_s: float, first: float, last: float, steps: int) -> list[tuple[float, float]]:
    """So many equal steps from one share to another."""
    return [
        (from_s + (until_s - from_s) * step / steps, first + (last - first) * step / steps)
        for step in range(1, steps + 1)
    ]


def test_steady_work_takes_for_the_rest_what_it_took_so_far() -> None:
    """A fifth in 10 s leaves four fifths, 40 s."""
    assert told(*steady(0, 10, 0, 0.2, 10)) == pytest.approx(40.0)


def test_nothing_is_told_of_a_few_steps_or_a_small_share() -> None:
    assert told((10, 0.2)) is None
    assert told(*steady(0, 10, 0, 0.2, 4)) is None
    assert told(*steady(0, 10, 0, 0.09, 20)) is None


def test_a_search_that_takes_most_of_its_time_in_the_first_step_is_not_extrapolated() -> None:
    """Sixteen levels: the first takes 30 s, the others 0.1 s each; 47 minutes were never left."""
    levels = [(30 + 0.1 * number, 0.8 * number / 16) for number in range(1, 16)]
    assert all(told(*levels[:known]) is None for known in range(1, 16))


def test_work_that_slows_down_is_not_told_until_the_new_pace_holds() -> None:
    """A tenth in 2 s, then a hundredth a second."""
    fast = steady(0, 2, 0, 0.1, 10)
    assert told(*fast, *steady(2, 12, 0.1, 0.2, 10)) is None
    # The last 11 s made 0.11, and 0.7 are left.
    assert told(*fast, *steady(2, 22, 0.1, 0.3, 20)) == pytest.approx(70.0)


def test_a_stall_ends_the_estimate() -> None:
    work = steady(0, 10, 0, 0.5, 10)
    assert told(*work, (11, 0.5)) == pytest.approx(11.0, rel=0.2)
    assert told(*work, (30, 0.5)) is None


def test_a_share_that_falls_begins_another_piece_of_work_with_its_own_clock() -> None:
    """A minute of preparation, then a timing run of which 20 % take 18 s: 72 s are left, not 5 minutes."""
    preparation = [(30.0, 0.5), (60.0, 1.0), (60.0, 0.0)]
    assert told(*preparation, (61, 0.01)) is None
    assert told(*preparation, *steady(60, 78, 0, 0.2, 60)) == pytest.approx(72.0)


def test_reports_in_quick_succession_are_followed_without_holding_each() -> None:
    pace = Pace(0.0)
    for number in range(1, 100_001):
        left_s = pace.left_s(number / 200_000, number / 10_000)
    assert left_s == pytest.approx(10.0, rel=0.05)
    assert len(pace._times_s) < 200
