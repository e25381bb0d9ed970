"""The `trace info` document: contract, verdict, and the published figures of real traces."""

import json
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from json_documents import check_document
from numpy.typing import NDArray
from rich.console import Console
from shared_data import SHARED_DATA, needs_shared_data
from small_traces import count_trace, count_traces, token_trace, token_traces

from placer.answer.trace import trace_answer
from placer.errors import BadInputError
from placer.profiler.replay import replay_decode, replay_prefill
from placer.profiler.trace.importing import import_trace
from placer.profiler.trace.info import trace_info
from placer.profiler.trace.request_counts import request_counts
from placer.profiler.trace.selection import coverage, selection_counts
from placer.profiler.trace.statistics import gini
from placer.profiler.trace.trace import PADDING, CountTrace, Phase, TokenTrace

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


def test_the_document_holds_the_contract_and_only_finite_numbers() -> None:
    trace = token_trace(
        [[[0, 1]], [[1, 2]], [[2, 1]]], experts=4, phase=[0, 1, 1], domain=[0, 0, 0], domains=("law",)
    )
    for one in (trace, count_trace([[[2, 1, 1, 0]]], top_k=2)):
        document = trace_info(one)
        assert set(document) >= CONTRACT
        check_document(["trace", "info"], json.dumps(document, allow_nan=False))
        assert json.loads(json.dumps(document)) == document
        assert set(document["coverage"]) == set(document["uniform_null"]) == {"25", "50", "60"}
        assert set(document["distinct_experts"]) == {"1", "8", "64"}
        assert all(document["null_reasons"][name] for name in document if document[name] is None)


def nulls(value: object, path: str = "") -> list[str]:
    """Paths of all nulls in a document."""
    if value is None:
        return [path]
    if isinstance(value, dict):
        inner = [nulls(one, f"{path}.{key}" if path else key) for key, one in value.items()]
        return [found for each in inner for found in each]
    return []


@settings(max_examples=40, deadline=None)
@given(trace=token_traces(padding=True) | count_traces())
def test_any_sound_trace_is_judged_in_finite_numbers_with_a_reason_for_every_null(
    trace: TokenTrace | CountTrace,
) -> None:
    for phase in Phase if isinstance(trace, TokenTrace) else ():
        assume(not (trace.phase == phase).any() or selection_counts(trace, phase).any(axis=1).all())
    document = trace_info(trace)
    check_document(["trace", "info"], json.dumps(document, allow_nan=False))
    assert json.loads(json.dumps(document)) == document
    assert all(document["null_reasons"][path] for path in nulls(document))
    assert document["verdict"] == "too small" or document["kind"] == "counts"


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


def test_counts_of_several_domains_say_that_domain_bound_is_not_excluded() -> None:
    """The document names the domains, and the answer says why nothing is said of them."""
    counts = count_trace([[[600, 400, 0, 0]], [[610, 390, 0, 0]]] * 4, top_k=1)
    trace = replace(
        counts, header=replace(counts.header, domains=("code", "law"), notes=("warning: made up",))
    )
    document = trace_info(trace)
    check_document(["trace", "info"], json.dumps(document, allow_nan=False))
    assert document["verdict"] == "useful"
    assert document["domains"] == ["code", "law"]
    assert "domain-bound is not excluded" in document["verdict_reason"]
    assert "do not keep which domain" in document["null_reasons"]["domain_overlap"]
    console = Console(width=120, file=StringIO())
    console.print(trace_answer(document))
    printed = " ".join(console.file.getvalue().split())
    assert "2 domains: code, law (counts do not tell which window is of which)" in printed
    assert "warning: made up" in printed


def test_a_layer_without_output_is_named() -> None:
    trace = token_trace([[[0], [0]], [[1], [PADDING]]], experts=2, phase=[0, 1])
    with pytest.raises(BadInputError, match="layer 1 has no selection"):
        trace_info(trace)


def spread(document: dict[str, Any], name: str) -> tuple[float, float]:
    """Least and most of a figure over layers."""
    values = document["layer_profile"][name]
    return min(values), max(values)


@needs_shared_data
def test_gpt_oss_shows_its_published_skew_and_locality() -> None:
    """Published over 703 requests; the part at hand holds 421 of them.

    Coverage moves by about .005 between random halves of the requests, reuse by .002.
    """
    trace = import_trace(SHARED_DATA / "traces" / "gptoss20b_tokens.npz")
    assert isinstance(trace, TokenTrace)
    document = trace_info(trace)
    check_document(["trace", "info"], json.dumps(document, allow_nan=False))
    assert document["coverage"] == pytest.approx({"25": 0.495, "50": 0.793, "60": 0.869}, abs=0.005)
    assert document["gini"] == pytest.approx(0.397, abs=0.005)
    assert document["lag1_reuse"] == pytest.approx(0.437, abs=0.004)
    assert document["distinct_experts"] == pytest.approx({"1": 4.0, "8": 18.0, "64": 28.9}, abs=0.15)
    assert document["uniform_null"] == pytest.approx({"25": 0.25, "50": 0.5, "60": 19 / 32}, abs=0.005)
    assert document["max_over_mean"] == pytest.approx(2.6, abs=0.06)
    assert document["popularity_lag1_reuse"] == pytest.approx(0.190, abs=0.002)
    assert spread(document, "coverage_25") == pytest.approx((0.40, 0.64), abs=0.01)
    assert spread(document, "gini") == pytest.approx((0.25, 0.51), abs=0.01)
    assert spread(document, "max_over_mean") == pytest.approx((1.9, 3.8), abs=0.1)
    reuse = document["layer_profile"]["lag1_reuse"]
    assert (reuse[0], reuse[1], reuse[23]) == pytest.approx((0.19, 0.28, 0.55), abs=0.01)
    assert reuse[10:14] == pytest.approx([0.585] * 4, abs=0.015)
    assert document["verdict"] == "domain-bound"
    # Batches of the replay hold as many distinct experts as independent tokens do.
    rows = replay_decode(trace, 64, 500, seed=0).rows
    assert (rows > 0).sum(axis=2).mean() == pytest.approx(document["distinct_experts"]["64"], abs=0.1)


@needs_shared_data
def test_qwen3_and_olmoe_show_their_published_skew() -> None:
    qwen = trace_info(import_trace(SHARED_DATA / "traces" / "qwen3_30b_a3b_counts.npz"))
    assert qwen["coverage"] == pytest.approx({"25": 0.650, "50": 0.888, "60": 0.935}, abs=0.0006)
    assert qwen["gini"] == pytest.approx(0.556, abs=0.0006)
    assert spread(qwen, "coverage_25") == pytest.approx((0.49, 0.71), abs=0.006)
    assert spread(qwen, "gini") == pytest.approx((0.39, 0.61), abs=0.006)
    assert spread(qwen, "max_over_mean") == pytest.approx((3.1, 7.7), abs=0.06)
    assert qwen["max_over_mean"] == pytest.approx(5.6, abs=0.06)
    olmoe = trace_info(import_trace(SHARED_DATA / "traces" / "olmoe_request_counts.npz"))
    assert olmoe["coverage"] == pytest.approx({"25": 0.436, "50": 0.697, "60": 0.774}, abs=0.0006)
    assert olmoe["gini"] == pytest.approx(0.283, abs=0.0006)
    assert spread(olmoe, "coverage_50") == pytest.approx((0.66, 0.73), abs=0.006)
    assert spread(olmoe, "max_over_mean") == pytest.approx((2.0, 5.9), abs=0.06)
    assert (qwen["verdict"], olmoe["verdict"]) == ("useful", "useful")
    for document in (qwen, olmoe):
        assert document["uniform_null"]["50"] == pytest.approx(0.505, abs=0.003)


@needs_shared_data
def test_gpt_oss_batches_use_as_many_experts_as_published() -> None:
    """Distinct experts per layer: of B independent requests, and of B consecutive tokens of one."""
    trace = import_trace(SHARED_DATA / "traces" / "gptoss20b_tokens.npz")

    def distinct(rows: NDArray[np.int32]) -> float:
        return float((rows > 0).sum(axis=2).mean())

    for batch, independent, consecutive in (
        (2, 7.2, 6.3),
        (4, 12.3, 9.5),
        (8, 18.0, 12.9),
        (16, 23.2, 16.2),
        (32, 26.8, 19.2),
        (64, 28.9, 21.3),
    ):
        assert distinct(replay_decode(trace, batch, 500, seed=0).rows) == pytest.approx(independent, abs=0.3)
        # A few chunks straddle two requests, as a server packs them.
        chunks = replay_prefill(trace, batch, 2000, seed=0, from_decode=True).rows
        assert distinct(chunks) == pytest.approx(consecutive, rel=0.06)


@needs_shared_data
def test_gpt_oss_domains_and_requests_are_more_skewed_than_their_mix() -> None:
    """Published: hottest quarter of one domain .60 (mathematics), .64 (law), .59 (medicine); of one request .681."""
    trace = import_trace(SHARED_DATA / "traces" / "gptoss20b_tokens.npz")
    requests = request_counts(trace)
    for name, quarter, half, skew in (
        ("mathematics", 0.60, 0.85, 0.50),
        ("law", 0.64, 0.90, 0.55),
        ("medicine", 0.59, 0.87, 0.50),
    ):
        chosen = requests.counts[requests.domain == trace.header.domains.index(name)].sum(axis=0)
        assert coverage(chosen, 0.25).mean() == pytest.approx(quarter, abs=0.025)
        assert coverage(chosen, 0.5).mean() == pytest.approx(half, abs=0.025)
        assert gini(chosen).mean() == pytest.approx(skew, abs=0.025)
    long = requests.counts[requests.counts.sum(axis=2).min(axis=1) >= 256 * 4]
    of_request = coverage(long, 0.25).mean(axis=1)
    assert of_request.mean() == pytest.approx(0.681, abs=0.015)
    assert of_request.std() == pytest.approx(0.043, abs=0.01)
