"""What a trace is worth: skew, reuse and distinct experts, beside what chance would show."""

import json
from dataclasses import replace

import numpy as np
import pytest
from shared_data import SHARED_DATA, needs_shared_data
from small_traces import count_trace, token_trace

from placer.errors import BadInputError
from placer.profiler.replay import replay_decode
from placer.profiler.trace.importing import import_trace
from placer.profiler.trace.statistics import (
    coverage,
    coverage_of_mask,
    distinct_experts,
    gini,
    lag1_reuse,
    selection_counts,
    selection_share,
    trace_info,
)
from placer.profiler.trace.trace import PADDING, Phase, TokenTrace
from placer.profiler.trace.uniform import uniform_counts

CONTRACT = {
    "kind",
    "layers",
    "experts",
    "top_k",
    "tokens",
    "requests",
    "phases",
    "domains",
    "coverage",
    "uniform_null",
    "gini",
    "lag1_reuse",
    "distinct_experts",
}


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


def test_coverage_of_a_placement_is_over_all_layers() -> None:
    counts = np.array([[1, 3], [5, 1]])
    assert coverage_of_mask(counts, np.array([[True, False], [True, False]])) == 0.6


def test_gini_of_equal_and_of_one_sided_counts() -> None:
    assert gini(np.array([[5, 5, 5, 5], [0, 0, 0, 8], [0, 0, 2, 2]])).tolist() == [0.0, 0.75, 0.5]


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


def test_the_document_holds_the_contract_and_only_finite_numbers() -> None:
    trace = token_trace(
        [[[0, 1]], [[1, 2]], [[2, 1]]], experts=4, phase=[0, 1, 1], domain=[0, 0, 0], domains=("law",)
    )
    for one in (trace, count_trace([[[2, 1, 1, 0]]], top_k=2)):
        document = trace_info(one)
        assert set(document) >= CONTRACT
        assert json.loads(json.dumps(document, allow_nan=False)) == document
        assert set(document["coverage"]) == set(document["uniform_null"]) == {"25", "50", "60"}
        assert set(document["distinct_experts"]) == {"1", "8", "64"}
        assert all(document["null_reasons"][name] for name in document if document[name] is None)


def test_a_mixed_trace_is_judged_on_its_output_and_shows_its_prompts_beside() -> None:
    trace = token_trace([[[0]], [[1]], [[2]], [[1]]], experts=4, phase=[0, 0, 1, 1])
    document = trace_info(trace)
    assert document["measured_on"] == "decode"
    assert document["phases"] == {"prefill": 2, "decode": 2}
    assert document["coverage"]["25"] == 0.5
    assert document["prefill"]["coverage"]["50"] == 1.0
    assert document["lag1_reuse"] == 0.0


def test_counts_say_why_they_hold_no_reuse() -> None:
    document = trace_info(count_trace([[[2, 1]], [[1, 1]]], top_k=1))
    assert (document["kind"], document["requests"], document["tokens"]) == ("counts", 2, 5)
    assert document["lag1_reuse"] is None
    assert "order" in document["null_reasons"]["lag1_reuse"]


def test_a_layer_without_output_is_named() -> None:
    trace = token_trace([[[0], [0]], [[1], [PADDING]]], experts=2, phase=[0, 1])
    with pytest.raises(BadInputError, match="layer 1 has no selection"):
        trace_info(trace)


@needs_shared_data
def test_gpt_oss_shows_its_published_skew_and_locality() -> None:
    """Published over 703 requests; the part at hand holds 421 of them.

    Coverage moves by about .005 between random halves of the requests, reuse by .002.
    """
    trace = import_trace(SHARED_DATA / "traces" / "gptoss20b_tokens.npz")
    assert isinstance(trace, TokenTrace)
    document = trace_info(trace)
    assert document["coverage"] == pytest.approx({"25": 0.495, "50": 0.793, "60": 0.869}, abs=0.005)
    assert document["gini"] == pytest.approx(0.397, abs=0.005)
    assert document["lag1_reuse"] == pytest.approx(0.437, abs=0.004)
    assert document["distinct_experts"] == pytest.approx({"1": 4.0, "8": 18.0, "64": 28.9}, abs=0.15)
    assert document["uniform_null"] == pytest.approx({"25": 0.25, "50": 0.5, "60": 19 / 32}, abs=0.005)
    reuse = lag1_reuse(trace)
    assert reuse is not None
    assert (reuse[0], reuse[1], reuse[23]) == pytest.approx((0.19, 0.28, 0.55), abs=0.01)
    # Batches of the replay hold as many distinct experts as independent tokens do.
    rows = replay_decode(trace, 64, 500, seed=0).rows
    assert (rows > 0).sum(axis=2).mean() == pytest.approx(document["distinct_experts"]["64"], abs=0.1)


@needs_shared_data
def test_qwen3_and_olmoe_show_their_published_skew() -> None:
    qwen = trace_info(import_trace(SHARED_DATA / "traces" / "qwen3_30b_a3b_counts.npz"))
    assert qwen["coverage"] == pytest.approx({"25": 0.650, "50": 0.888, "60": 0.935}, abs=0.0006)
    assert qwen["gini"] == pytest.approx(0.556, abs=0.0006)
    olmoe = trace_info(import_trace(SHARED_DATA / "traces" / "olmoe_request_counts.npz"))
    assert olmoe["coverage"] == pytest.approx({"25": 0.436, "50": 0.697, "60": 0.774}, abs=0.0006)
    assert olmoe["gini"] == pytest.approx(0.283, abs=0.0006)
    for document in (qwen, olmoe):
        assert document["uniform_null"]["50"] == pytest.approx(0.505, abs=0.003)


@needs_shared_data
def test_the_frequency_of_one_domain_is_not_that_of_another() -> None:
    """Published: hot half of mathematics serves .57 of law, its own .85 or more."""
    trace = import_trace(SHARED_DATA / "traces" / "gptoss20b_tokens.npz")
    assert isinstance(trace, TokenTrace)
    assert trace.domain is not None
    by_name = {}
    for number, name in enumerate(trace.header.domains):
        chosen = trace.topk_ids[trace.domain == number]
        by_name[name] = np.stack([np.bincount(chosen[:, row].ravel(), minlength=32) for row in range(24)])
    hottest = np.argsort(-by_name["mathematics"], axis=1)[:, :16]
    hot = np.zeros((24, 32), dtype=bool)
    np.put_along_axis(hot, hottest, True, axis=1)
    assert coverage_of_mask(by_name["mathematics"], hot) == pytest.approx(0.85, abs=0.03)
    assert coverage_of_mask(by_name["law"], hot) == pytest.approx(0.57, abs=0.04)
    assert selection_share(trace, Phase.DECODE).sum(axis=1) == pytest.approx(np.full(24, 4.0))
