"""Synthetic traces show the measured statistics of the model they are named after."""

import time

import numpy as np
import pytest

from placer.errors import BadInputError
from placer.profiler.replay import replay_decode, replay_prefill
from placer.profiler.trace.info import trace_info
from placer.profiler.trace.integrity import check_trace
from placer.profiler.trace.selection import coverage, selection_counts
from placer.profiler.trace.split import tokens_where
from placer.profiler.trace.statistics import gini, lag1_reuse
from placer.profiler.trace.synth import synthesise
from placer.profiler.trace.synth_presets import PRESETS
from placer.profiler.trace.trace import Phase, TokenTrace


@pytest.fixture(scope="module")
def qwen() -> TokenTrace:
    started = time.perf_counter()
    trace = synthesise("qwen3-30b-a3b", seed=0)
    assert time.perf_counter() - started < 20
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


def test_qwen3_30b_has_its_measured_skew_and_locality(qwen: TokenTrace) -> None:
    """75,773 decode tokens measured; a synthetic trace of 16,384 differs by the draw of its scores."""
    document = trace_info(qwen)
    assert document["coverage"] == pytest.approx({"25": 0.650, "50": 0.888, "60": 0.935}, abs=0.015)
    assert document["gini"] == pytest.approx(0.556, abs=0.02)
    assert document["lag1_reuse"] == pytest.approx(0.427, abs=0.02)
    # From the measured counts, for independent tokens: 41.98 of 128 at a batch of 8, 95.5 at 64.
    assert document["distinct_experts"]["8"] == pytest.approx(42.0, abs=1.0)
    assert document["distinct_experts"]["64"] == pytest.approx(95.5, abs=4.0)
    assert document["uniform_null"] == pytest.approx({"25": 0.26, "50": 0.51, "60": 0.61}, abs=0.01)


def test_gpt_oss_has_its_measured_skew_and_locality(gpt_oss: TokenTrace) -> None:
    document = trace_info(gpt_oss)
    assert document["coverage"] == pytest.approx({"25": 0.495, "50": 0.793, "60": 0.869}, abs=0.03)
    assert document["gini"] == pytest.approx(0.397, abs=0.025)
    assert document["lag1_reuse"] == pytest.approx(0.437, abs=0.02)
    assert document["distinct_experts"]["8"] == pytest.approx(18.0, abs=0.5)
    assert document["distinct_experts"]["64"] == pytest.approx(28.9, abs=1.2)
    assert document["uniform_null"] == pytest.approx({"25": 0.25, "50": 0.51, "60": 0.60}, abs=0.01)


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


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(BadInputError) as caught:
        synthesise("mixtral")
    assert "gpt-oss-20b" in caught.value.hint
