"""Statistics of routing by hand: skew, reuse and distinct experts, and what chance shows."""

from dataclasses import replace

import numpy as np
import pytest
from small_traces import count_trace, token_trace

from placer.profiler.trace.selection import coverage, coverage_of_mask, hottest, selection_counts
from placer.profiler.trace.statistics import distinct_experts, gini, lag1_reuse, max_over_mean
from placer.profiler.trace.trace import PADDING
from placer.profiler.trace.uniform import uniform_counts


def test_selections_are_counted_by_layer_and_expert() -> None:
    trace = token_trace([[[0, 1], [2, PADDING]], [[1, 2], [2, 0]]], experts=3)
    assert selection_counts(trace).tolist() == [[1, 2, 1], [1, 0, 2]]
    assert selection_counts(count_trace([[[1, 2]], [[3, 0]]], top_k=1)).tolist() == [[4, 2]]


def test_coverage_is_the_share_of_the_hottest_experts() -> None:
    counts = np.array([[1, 6, 2, 1], [4, 4, 4, 4]])
    assert coverage(counts, 0.25).tolist() == [0.6, 0.25]
    assert coverage(counts, 0.5).tolist() == [0.8, 0.5]
    assert coverage(counts, 0.0).tolist() == [0.0, 0.0]
    assert coverage(counts, 1.0).tolist() == [1.0, 1.0]


def test_the_hottest_experts_of_each_layer_smaller_ids_first_among_equals() -> None:
    found = hottest(np.array([[1, 6, 2, 1], [4, 4, 4, 4]]), 0.5)
    assert found.tolist() == [[False, True, True, False], [True, True, False, False]]


def test_coverage_of_a_placement_is_over_all_layers() -> None:
    counts = np.array([[1, 3], [5, 1]])
    assert coverage_of_mask(counts, np.array([[True, False], [True, False]])) == 0.6


def test_gini_of_equal_and_of_one_sided_counts() -> None:
    assert gini(np.array([[5, 5, 5, 5], [0, 0, 0, 8], [0, 0, 2, 2]])).tolist() == [0.0, 0.75, 0.5]


def test_the_hottest_expert_over_the_mean() -> None:
    assert max_over_mean(np.array([[1, 6, 1, 0], [2, 2, 2, 2]])).tolist() == [3.0, 1.0]


def test_reuse_counts_experts_that_the_next_token_chooses_again() -> None:
    # Of request 0: {0,1} -> {1,2} keeps one of two, {1,2} -> {1,2} keeps both. Request 1 does not follow it.
    trace = token_trace([[[0, 1]], [[1, 2]], [[2, 1]], [[1, 2]]], experts=3, request=[0, 0, 0, 1])
    assert lag1_reuse(trace) == pytest.approx([0.75])
    assert lag1_reuse(token_trace([[[0]]], experts=1)) is None


def test_tokens_around_a_gap_do_not_follow_each_other() -> None:
    trace = token_trace([[[0]], [[0]], [[1]]], experts=2)
    gap = replace(trace, position=np.array([0, 1, 3], dtype=np.int32))
    assert lag1_reuse(gap) == pytest.approx([1.0])


def test_padding_is_no_reuse() -> None:
    trace = token_trace([[[0, PADDING]], [[0, PADDING]], [[1, PADDING]]], experts=2)
    assert lag1_reuse(trace) == pytest.approx([0.5])


def test_distinct_experts_of_independent_tokens() -> None:
    # Top-1 of two equal experts: one token 1, two tokens 1 + 1/2, three tokens 2 - 2/8.
    share = np.array([[0.5, 0.5]])
    assert [float(distinct_experts(share, batch)[0]) for batch in (1, 2, 3)] == [1.0, 1.5, 1.75]


def test_uniform_counts_are_those_of_a_router_that_chooses_by_chance() -> None:
    counts = uniform_counts(200, 8, 3, 4000, np.random.default_rng(0))
    assert (counts.sum(axis=1) == 600).all()
    assert counts.max() <= 200
    # An expert is one of 3 in 8 for each token; two of them, (3 · 2) / (8 · 7) together.
    p = 3 / 8
    np.testing.assert_allclose(counts.mean(axis=0), 200 * p, rtol=0.01)
    np.testing.assert_allclose(counts.var(axis=0), 200 * p * (1 - p), rtol=0.12)
    covariance = 200 * (3 * 2 / (8 * 7) - p * p)
    np.testing.assert_allclose(np.cov(counts.T)[np.triu_indices(8, 1)], covariance, atol=3.5)


def test_small_samples_look_skewed_by_chance() -> None:
    """96 tokens, top-8 of 128: a uniform router drawn token by token shows the same as the exact counts.

    Published for this size: coverage at 50 % .659 and Gini .226, with experts drawn with replacement.
    """
    random = np.random.default_rng(0)
    chosen = np.argsort(random.random((200, 96, 128)), axis=2)[:, :, :8].reshape(200, -1)
    drawn = np.stack([np.bincount(one, minlength=128) for one in chosen])
    exact = uniform_counts(96, 128, 8, 200, random)
    for counts in (drawn, exact):
        assert coverage(counts, 0.5).mean() == pytest.approx(0.655, abs=0.004)
        assert gini(counts).mean() == pytest.approx(0.220, abs=0.004)
    many = uniform_counts(10_000, 128, 8, 200, random)
    assert coverage(many, 0.5).mean() == pytest.approx(0.516, abs=0.002)
