"""Held-out coverage: what the hot set of some requests serves of others."""

import numpy as np
import pytest
from shared_data import SHARED_DATA, needs_shared_data

from placer.profiler.trace.heldout import heldout_coverage
from placer.profiler.trace.importing import import_trace
from placer.profiler.trace.request_counts import RequestCounts, request_counts


def requests(counts: object) -> RequestCounts:
    array = np.asarray(counts, dtype=np.int64)
    return RequestCounts(array, np.full(len(array), -1), len(array))


def test_requests_that_agree_serve_each_other_as_themselves() -> None:
    found = heldout_coverage(requests([[[6, 2, 1, 1]]] * 20), 0.5)
    assert found is not None
    assert (found.mean, found.low, found.high, found.fitted) == pytest.approx((0.8, 0.8, 0.8, 0.8))


def test_requests_that_each_use_their_own_expert_gain_nothing_from_each_other() -> None:
    """Twenty requests of one expert each out of 40: what was seen says nothing of what was not."""
    counts = np.zeros((20, 1, 40))
    counts[np.arange(20), 0, np.arange(20)] = 100
    found = heldout_coverage(requests(counts), 0.25)
    assert found is not None
    assert found.fitted > 0.7
    assert found.mean < 0.01


def test_few_requests_are_no_evidence() -> None:
    assert heldout_coverage(requests([[[3, 1]]] * 7), 0.5) is None
    assert heldout_coverage(requests([[[3, 1]]] * 8), 0.5) is not None


def test_requests_alone_in_their_domain_are_drawn_among_each_other() -> None:
    alone = RequestCounts(np.array([[[6, 2, 1, 1]]] * 8), np.arange(8), 8)
    found = heldout_coverage(alone, 0.5)
    assert found is not None
    assert found.mean == pytest.approx(0.8)


def test_chance_draws_show_no_coverage_beyond_chance() -> None:
    """A uniform router looks skewed on what was fitted (.55 at 8 expected selections), not on other requests."""
    counts = np.random.default_rng(0).multinomial(64, np.full(64, 1 / 64), size=(40, 8))
    found = heldout_coverage(requests(counts), 0.5)
    assert found is not None
    assert found.fitted > 0.55
    assert found.mean == pytest.approx(0.5, abs=0.01)


@needs_shared_data
def test_gpt_oss_and_olmoe_hold_their_published_coverage_on_other_requests() -> None:
    """Published: gpt-oss .498/.794/.869 of 703 requests, here .492/.791/.867 of 421; OLMoE .431/.693/.771."""
    for name, published, tolerance in (
        ("gptoss20b_tokens.npz", (0.498, 0.794, 0.869), 0.008),
        ("olmoe_request_counts.npz", (0.431, 0.693, 0.771), 0.006),
    ):
        counts = request_counts(import_trace(SHARED_DATA / "traces" / name))
        for share, expected in zip((0.25, 0.5, 0.6), published, strict=True):
            found = heldout_coverage(counts, share)
            assert found is not None
            assert found.mean == pytest.approx(expected, abs=tolerance)
            assert found.low < expected < found.high
            assert 0 < found.fitted - found.mean < 0.006
