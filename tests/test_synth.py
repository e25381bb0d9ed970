"""Synthetic traces show the measured statistics of the model they are named after."""

import time

import numpy as np
import pytest

from placer.errors import BadInputError
from placer.profiler.replay import replay_decode, replay_prefill
from placer.profiler.trace.info import trace_info
from placer.profiler.trace.integrity import check_trace
from placer.profiler.trace.request_counts import request_counts
from placer.profiler.trace.selection import coverage, selection_counts
from placer.profiler.trace.split import tokens_where
from placer.profiler.trace.statistics import gini, lag1_reuse
from placer.profiler.trace.synth import synthesise
from placer.profiler.trace.synth_presets import PRESETS
from placer.profiler.trace.trace import Phase, TokenTrace


@pytest.fixture(scope="module")
def qwen() -> TokenTrace:
    started = time.process_time()
    trace = synthesise("qwen3-30b-a3b", seed=0)
    assert time.process_time() - started < 20
    return trace


@pytest.fixture(scope="module")
def gpt_oss() -> TokenTrace:
    return synthesise("gpt-oss-20b", seed=0)


def jaccard(trace: TokenTrace, one: np.ndarray, other: np.ndarray, share: float) -> float:
    """Overlap of the hottest ``share`` of each layer's experts between the tokens of two masks."""
    hot = []
    for chosen in (one, other):
        counts = selection_counts(tokens_where(trace, chosen))
        mask = np.zeros(counts.shape, dtype=bool)
        np.put_along_axis(
            mask, np.argsort(-counts, axis=1)[:, : round(share * counts.shape[1])], True, axis=1
        )
        hot.append(mask)
    return float((hot[0] & hot[1]).sum() / (hot[0] | hot[1]).sum())


def mean_overlap(trace: TokenTrace, first: Phase, second: Phase, *, same_domain: bool) -> float:
    """Mean overlap of hot quarters between domains (or within each), of one phase against another."""
    assert trace.domain is not None
    domains = range(len(trace.header.domains))
    pairs = [(a, b) for a in domains for b in domains if (a == b) == same_domain]
    return float(
        np.mean(
            [
                jaccard(
                    trace,
                    (trace.domain == a) & (trace.phase == first),
                    (trace.domain == b) & (trace.phase == second),
                    0.25,
                )
                for a, b in pairs
            ]
        )
    )


# Measured figures (the sources are each preset's ``origin``), means over layers: coverage of the hottest 25, 50 and
# 60 %, Gini, max/mean, reuse by the next token, distinct experts per layer at a batch of 64. Where reuse was not
# recorded, None. Gamma scores make the single hottest expert a little less hot than some models do.
MEASURED = {
    "gpt-oss-20b": ((0.495, 0.793, 0.869), 0.397, 2.6, 0.437, 28.9),
    "qwen3-30b-a3b": ((0.650, 0.888, 0.935), 0.556, 5.6, 0.427, 95.5),
    "olmoe": ((0.436, 0.697, 0.774), 0.283, 3.1, None, 63.4),
    "mixtral": ((0.310, 0.568, 0.690), 0.095, 1.3, None, 8.0),
}


@pytest.mark.parametrize("preset", sorted(MEASURED))
def test_a_preset_has_its_measured_skew_and_locality(preset: str, qwen: TokenTrace) -> None:
    """A synthetic trace of 16,384 outputs differs from the measured ones by the draw of its scores."""
    shares, skew, hottest_over_mean, reuse, distinct = MEASURED[preset]
    document = trace_info(qwen if preset == "qwen3-30b-a3b" else synthesise(preset, seed=0))
    coverages = dict(zip(("25", "50", "60"), shares, strict=True))
    assert document["coverage"] == pytest.approx(coverages, abs=0.025)
    assert document["gini"] == pytest.approx(skew, abs=0.025)
    assert document["max_over_mean"] == pytest.approx(hottest_over_mean, rel=0.22)
    assert document["distinct_experts"]["64"] == pytest.approx(distinct, rel=0.035)
    if reuse is not None:
        assert document["lag1_reuse"] == pytest.approx(reuse, abs=0.02)
    # What a uniform router shows on as many tokens, beside each.
    E, K = document["experts"], document["top_k"]
    null = {percent: round(int(percent) * E / 100) / E for percent in coverages}
    assert document["uniform_null"] == pytest.approx(null, abs=0.013)
    assert all(document["coverage"][at] > document["uniform_null"][at] + 0.04 for at in coverages)
    assert document["uniform_null_gini"] < 0.02 < document["gini"]
    assert document["uniform_null_max_over_mean"] < 1.09 < document["max_over_mean"]
    assert document["uniform_null_lag1_reuse"] == K / E < document["lag1_reuse"]
    assert document["uniform_null_distinct_experts"]["64"] >= document["distinct_experts"]["64"]
    assert document["verdict"] == ("flat" if preset == "mixtral" else "useful")


def test_gpt_oss_uses_fewer_experts_in_small_batches_as_measured(gpt_oss: TokenTrace) -> None:
    distinct = trace_info(gpt_oss)["distinct_experts"]
    assert distinct == pytest.approx({"1": 4.0, "8": 18.0, "64": 28.9}, rel=0.03)


def test_olmoe_requests_have_the_working_sets_that_were_recorded() -> None:
    """Recorded: two random tokens of a request share .236 of their experts, .164 by popularity alone."""
    requests = request_counts(synthesise("olmoe", seed=0), Phase.DECODE).counts
    tokens, top_k = 256, 8
    again = (requests * (requests - 1)).sum(axis=2) / (tokens * (tokens - 1) * top_k)
    assert again.mean() == pytest.approx(0.236, abs=0.015)


def test_the_domain_bound_preset_makes_one_domains_plan_worthless_for_another() -> None:
    """OLMoE on unrelated text and code: hot quarters serve .59 of their own domain, .11 to .16 of another
    (chance .25), and share .04 to .14 (Jaccard; chance .14); own Gini .48, half of the experts serve .82.
    """
    document = trace_info(synthesise("domain-bound", seed=0))
    overlap = document["domain_overlap"]
    apart = ~np.eye(4, dtype=bool)
    quarter, half = np.array(overlap["coverage_25"]), np.array(overlap["coverage_50"])
    assert np.diag(quarter).mean() == pytest.approx(0.56, abs=0.04)
    assert quarter[apart].max() < 0.20
    assert quarter[apart].mean() == pytest.approx(0.16, abs=0.03)
    shared = np.array(overlap["jaccard_25"])[apart]
    assert shared.mean() == pytest.approx(0.06, abs=0.03)
    assert shared.max() < 0.14
    assert np.diag(half).mean() == pytest.approx(0.83, abs=0.02)
    assert half[apart].max() < 0.5
    assert document["verdict"] == "domain-bound"


def test_a_domain_of_the_widest_preset_has_the_measured_skew_and_a_pool_of_them_less() -> None:
    """Recorded from instructions and code: .587, .847, .910, Gini .496. Reuse by the next token, another model: .46."""
    size = {"requests": 32, "prompt_tokens": 0, "output_tokens": 64}
    one, pool = (trace_info(synthesise("qwen3-next-80b-a3b", domains=count, **size)) for count in (1, 16))
    assert one["coverage"] == pytest.approx({"25": 0.587, "50": 0.847, "60": 0.910}, abs=0.025)
    assert one["gini"] == pytest.approx(0.496, abs=0.025)
    assert one["lag1_reuse"] == pytest.approx(0.46, abs=0.05)
    assert pool["gini"] / one["gini"] == pytest.approx(0.40 / 0.525, abs=0.06)


@pytest.mark.parametrize("seed", [1, 2])
def test_another_seed_is_another_trace_with_the_same_statistics(seed: int, gpt_oss: TokenTrace) -> None:
    trace = synthesise("gpt-oss-20b", seed=seed)
    assert (trace.topk_ids != gpt_oss.topk_ids).any()
    document = trace_info(trace)
    assert document["coverage"]["50"] == pytest.approx(0.793, abs=0.03)
    assert document["lag1_reuse"] == pytest.approx(0.437, abs=0.03)


def test_first_layers_are_flatter_and_less_local(qwen: TokenTrace, gpt_oss: TokenTrace) -> None:
    counts = selection_counts(qwen, Phase.DECODE)
    assert gini(counts)[0] == pytest.approx(0.39, abs=0.05)  # measured .387, later layers .52-.61
    assert coverage(counts, 0.25)[0] == pytest.approx(0.49, abs=0.06)
    reuse = lag1_reuse(qwen, Phase.DECODE)
    assert reuse is not None
    # Literature: layer 0 .08, 7 .60, 47 .21; this skew alone gives .11 in layer 0.
    assert (reuse[0], reuse[7], reuse[47]) == pytest.approx((0.1, 0.6, 0.2), abs=0.03)
    shallow = lag1_reuse(gpt_oss, Phase.DECODE)
    assert shallow is not None
    assert (shallow[0], shallow[1], shallow[11]) == pytest.approx((0.19, 0.28, 0.58), abs=0.04)


def test_domains_of_gpt_oss_overlap_as_measured(gpt_oss: TokenTrace) -> None:
    # Measured between eight domains of 16 requests each: .44 on average (uniform .14).
    between = mean_overlap(gpt_oss, Phase.DECODE, Phase.DECODE, same_domain=False)
    assert between == pytest.approx(0.44, abs=0.06)


def test_prompts_are_less_bound_to_their_domain_and_differ_from_outputs(qwen: TokenTrace) -> None:
    outputs = mean_overlap(qwen, Phase.DECODE, Phase.DECODE, same_domain=False)
    prompts = mean_overlap(qwen, Phase.PREFILL, Phase.PREFILL, same_domain=False)
    across = mean_overlap(qwen, Phase.PREFILL, Phase.DECODE, same_domain=True)
    assert prompts > outputs + 0.05
    assert across < prompts - 0.1
    reuse = lag1_reuse(qwen, Phase.PREFILL)
    assert reuse is not None
    assert reuse.mean() == pytest.approx(0.365, abs=0.02)  # literature, one prompt


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_synthetic_trace_is_sound_and_says_what_it_is(preset: str) -> None:
    trace = synthesise(preset, requests=5, prompt_tokens=3, output_tokens=4, domains=2, seed=1)
    check_trace(trace, "synthetic")
    assert trace.header.source.startswith(f"synthetic: preset {preset}")
    assert trace.tokens == 5 * 7
    assert trace.phase[:7].tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert trace.header.domains == ("synthetic 0", "synthetic 1")
    assert replay_decode(trace, 5, 3, seed=0).approximate is None
    assert replay_prefill(trace, 5, 3, seed=0).approximate is None


def test_the_seed_makes_the_trace() -> None:
    first, again = (synthesise("gpt-oss-20b", requests=2, output_tokens=3, seed=4) for _ in range(2))
    np.testing.assert_array_equal(first.topk_ids, again.topk_ids)


def test_a_trace_may_hold_outputs_alone() -> None:
    trace = synthesise("gpt-oss-20b", requests=2, prompt_tokens=0, output_tokens=3)
    assert (trace.phase == Phase.DECODE).all()


@pytest.mark.parametrize(
    "numbers", [{"requests": 0}, {"output_tokens": 0}, {"domains": 0}, {"prompt_tokens": -1}]
)
def test_impossible_sizes_are_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(BadInputError, match="at least one"):
        synthesise("gpt-oss-20b", **numbers)


def test_a_domain_without_requests_is_refused() -> None:
    with pytest.raises(BadInputError, match="100 domains need as many requests, 4 were asked for"):
        synthesise("gpt-oss-20b", requests=4, domains=100)


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(BadInputError) as caught:
        synthesise("mixtral-8x22b")
    assert "gpt-oss-20b" in caught.value.hint
