"""Domains: how far their hot experts overlap, and what one domain's hot set serves of another."""

import numpy as np
import pytest
from shared_data import SHARED_DATA, needs_shared_data

from placer.profiler.trace.domains import domain_overlap
from placer.profiler.trace.importing import import_trace
from placer.profiler.trace.request_counts import RequestCounts, request_counts


def two_domains(first: list[int], second: list[int]) -> RequestCounts:
    """Two domains of two equal requests each, one layer."""
    counts = np.array([[first], [first], [second], [second]], dtype=np.int64)
    return RequestCounts(counts, np.array([0, 0, 1, 1]), 4)


def test_domains_that_use_other_experts_do_not_serve_each_other() -> None:
    found = domain_overlap(two_domains([700, 200, 50, 50], [50, 50, 200, 700]), ("law", "code"), top_k=1)
    assert found is not None
    assert (found.names, found.tokens) == (("law", "code"), (2000, 2000))
    assert found.jaccard.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    np.testing.assert_allclose(found.coverage[0.25], [[0.7, 0.05], [0.05, 0.7]])
    np.testing.assert_allclose(found.coverage[0.5], [[0.9, 0.1], [0.1, 0.9]])
    # Chance serves .5, so the wrong hot set loses as much as the right one gains.
    np.testing.assert_allclose(found.kept_gain(0.5), [[1.0, -1.0], [-1.0, 1.0]])


def test_the_diagonal_is_of_requests_that_the_hot_set_was_not_learned_from() -> None:
    counts = np.array([[[900, 100]], [[100, 900]], [[900, 100]], [[900, 100]]])
    found = domain_overlap(RequestCounts(counts, np.array([0, 0, 1, 1]), 4), ("mixed", "pure"), top_k=1)
    assert found is not None
    assert np.diag(found.coverage[0.5]).tolist() == [0.1, 0.9]


def test_small_domains_are_left_out_with_the_reason() -> None:
    counts = np.array([[[600, 400]]] * 4 + [[[5, 5]], [[900, 600]]])
    found = domain_overlap(
        RequestCounts(counts, np.array([0, 0, 1, 1, 2, 3]), 6), ("a", "b", "few", "single"), top_k=1
    )
    assert found is not None
    assert found.names == ("a", "b")
    assert "10 tokens" in found.left_out["few"]
    assert "two requests" in found.left_out["single"]
    assert domain_overlap(two_domains([5, 5], [5, 5]), ("a", "b"), top_k=1) is None


@needs_shared_data
def test_gpt_oss_domains_overlap_as_published() -> None:
    """Published by its own topic names (here grouped by subject): Jaccard and coverage of hot quarters.

    math→law .18/.25, math→gpqa-science .65/.53, law→humanities .76/.56; with half hot: own .85-.90, math→law .57,
    math→sorry .53, science→humanities .65.
    """
    trace = import_trace(SHARED_DATA / "traces" / "gptoss20b_tokens.npz")
    found = domain_overlap(request_counts(trace), trace.header.domains, trace.header.top_k)
    assert found is not None
    at = {name: number for number, name in enumerate(found.names)}

    def pair(one: str, other: str) -> tuple[float, float, float]:
        where = at[one], at[other]
        return (
            float(found.jaccard[where]),
            float(found.coverage[0.25][where]),
            float(found.coverage[0.5][where]),
        )

    assert pair("mathematics", "law") == pytest.approx((0.18, 0.25, 0.57), abs=0.02)
    assert pair("mathematics", "science")[:2] == pytest.approx((0.65, 0.53), abs=0.065)
    assert pair("law", "humanities")[:2] == pytest.approx((0.76, 0.56), abs=0.03)
    assert pair("mathematics", "sorry_bench_base")[2] == pytest.approx(0.53, abs=0.02)
    assert pair("science", "humanities")[2] == pytest.approx(0.65, abs=0.03)
    science_to_sorry = pair("science", "sorry_bench_base")
    assert science_to_sorry[:2] == pytest.approx((0.15, 0.21), abs=0.06)
    own = [found.coverage[0.5][at[name], at[name]] for name in ("mathematics", "law", "medicine")]
    assert own == pytest.approx([0.875] * 3, abs=0.03)
    computing = found.jaccard[at["computer science"]]
    others = [computing[at[name]] for name in ("law", "medicine", "humanities", "business")]
    assert 0.40 < min(others) <= max(others) < 0.64  # published: .41-.63, the most neutral profile
