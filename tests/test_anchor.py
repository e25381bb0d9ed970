"""Anchors: which calls of a profile are timed again, and what their new times say about the machine."""

from dataclasses import replace

import pytest
from profiles import SHAPE, TRUTH, kernel

from placer.profiler.timing.anchor import FEWEST, MOST, Anchor, anchors, regime_drifts
from placer.profiler.timing.call import Call, Role

PROFILED = kernel(replace(SHAPE, experts=64))


def test_anchors_take_about_as_long_as_the_layer_steps() -> None:
    (regime,) = PROFILED.cost.regimes
    chosen = anchors(PROFILED, {regime: [90.0, 100.0, 400.0] * 3})
    assert len(chosen) == FEWEST
    # Eight experts with a row each take 5 + 8·(10 + 2) microseconds (`profiles.TRUTH`): nothing is nearer to 100.
    assert chosen[0].call.rows == (1,) * 8
    assert all(anchor.profiled_us == pytest.approx(100.0, rel=0.15) for anchor in chosen)
    assert len(anchors(PROFILED, {regime: [100.0] * 300})) == MOST


def test_every_regime_with_layer_steps_has_its_own() -> None:
    (regime,) = TRUTH.regimes
    two = (replace(regime, max_tokens=4), replace(regime, min_tokens=5))
    split = replace(PROFILED, cost=replace(PROFILED.cost, regimes=two))
    assert anchors(split, {two[0]: [], two[1]: []}) == ()
    chosen = anchors(split, {two[0]: [50.0] * 9, two[1]: [200.0] * 9})
    assert [anchor.call.tokens <= 4 for anchor in chosen] == [True] * 3 + [False] * 3
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
