"""Anchors: which calls of a profile are timed again, and what their new times say about the machine."""

from dataclasses import replace

import pytest
from profiles import SHAPE, TRUTH, kernel

from placer.profiler.timing.anchor import ANCHOR_ROWS, FEWEST, MOST, Anchor, anchors, regime_drifts
from placer.profiler.timing.call import Call, Role

PROFILED = kernel(replace(SHAPE, experts=64))


def test_anchors_are_cheap_grid_calls_with_the_times_of_the_profile() -> None:
    chosen = anchors(PROFILED, seconds=1.0, rounds=16)
    assert len(chosen) == MOST
    # Four experts with a row each: 5 + 4·(10 + 2) (`profiles.TRUTH`).
    assert chosen[0] == Anchor(Call((1, 1, 1, 1), 2, Role.GRID, "anchor"), pytest.approx(53.0))
    assert {anchor.call.rows[0] for anchor in chosen} <= set(ANCHOR_ROWS)
    assert all(len(anchor.call.rows) >= 4 for anchor in chosen)


def test_short_of_time_the_cheapest_few_are_left() -> None:
    chosen = anchors(PROFILED, seconds=0.0, rounds=16)
    assert chosen == anchors(PROFILED, seconds=1.0, rounds=16)[:FEWEST]


def test_every_regime_has_its_own() -> None:
    (regime,) = TRUTH.regimes
    two = (replace(regime, max_tokens=4), replace(regime, min_tokens=5))
    split = replace(PROFILED, cost=replace(PROFILED.cost, regimes=two))
    chosen = anchors(split, seconds=1.0, rounds=16)
    assert {anchor.call.tokens <= 4 for anchor in chosen} == {True, False}
    now_us = {
        anchor.call: anchor.profiled_us * (1.02 if anchor.call.tokens <= 4 else 0.9) for anchor in chosen
    }
    below, beyond = regime_drifts(split, chosen, now_us)
    assert (below.min_tokens, below.max_tokens, beyond.min_tokens, beyond.max_tokens) == (1, 4, 5, None)
    assert below.drift == pytest.approx(0.02)
    assert beyond.drift == pytest.approx(-0.10)


def test_drift_is_the_median_so_that_one_disturbed_anchor_moves_nothing() -> None:
    calls = [Call((m,) * 4, 8, Role.GRID, "anchor") for m in (1, 2, 4)]
    profiled = [Anchor(call, 100.0) for call in calls]
    (drift,) = regime_drifts(PROFILED, profiled, dict(zip(calls, (104.0, 106.0, 180.0), strict=True)))
    assert drift.drift == pytest.approx(0.06)
    # Quartiles of the ratios: 1.05 and 1.43.
    assert drift.spread == pytest.approx(0.19)


def test_without_anchors_there_is_no_drift_to_speak_of() -> None:
    (drift,) = regime_drifts(PROFILED, (), {})
    assert (drift.anchors, drift.drift) == (0, 0.0)
