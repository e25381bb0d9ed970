"""Replay: what each step asks of every expert is what its tokens chose."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from shared_data import SHARED_DATA, needs_shared_data
from small_traces import count_trace, count_traces, token_trace, token_traces

from placer.errors import BadInputError
from placer.profiler.independence import independent_rows
from placer.profiler.replay import SAMPLED, replay_decode, replay_mixed, replay_prefill
from placer.profiler.steps import StepKind
from placer.profiler.trace.importing import import_trace
from placer.profiler.trace.selection import inclusion_share, selection_share
from placer.profiler.trace.trace import PADDING, CountTrace, Phase, TokenTrace


def one_expert_per_token(*, tokens: list[int], phase: Phase = Phase.DECODE) -> TokenTrace:
    """Requests of the given lengths in which token number t (over all requests) chooses expert t alone."""
    T = sum(tokens)
    return token_trace(
        np.arange(T)[:, None, None],
        experts=T,
        request=np.repeat(np.arange(len(tokens)), tokens).tolist(),
        phase=[int(phase)] * T,
    )


def played(rows: np.ndarray) -> list[list[int]]:
    """Tokens of each step of a `one_expert_per_token` trace, by step."""
    return [np.repeat(np.arange(rows.shape[2]), step[0]).tolist() for step in rows]


def test_one_slot_plays_requests_in_order_one_after_the_other() -> None:
    trace = one_expert_per_token(tokens=[2, 3])
    steps = replay_decode(trace, 1, 5, seed=0, spacing=1)
    line = [token for step in played(steps.rows) for token in step]
    # One pass: every token once, requests whole up to the point where the pass began.
    assert sorted(line) == [0, 1, 2, 3, 4]
    follows = {(0, 1), (2, 3), (3, 4)}
    cyclic = {(line[at], line[(at + 1) % 5]) for at in range(5)}
    assert follows <= cyclic
    assert steps.kind is StepKind.DECODE
    assert steps.tokens.tolist() == [1] * 5
    assert steps.approximate is None


def test_slots_play_different_tokens() -> None:
    trace = one_expert_per_token(tokens=[4, 4, 4])
    steps = replay_decode(trace, 3, 4, seed=1, spacing=1)
    assert steps.rows.max() == 1
    # A pass of 4 steps by 3 slots plays each of the 12 tokens once.
    assert sorted(token for step in played(steps.rows) for token in step) == list(range(12))


def test_few_steps_are_spread_over_the_whole_trace() -> None:
    trace = one_expert_per_token(tokens=[100])
    tokens = np.array(played(replay_decode(trace, 1, 4, seed=2).rows))[:, 0]
    assert np.all(np.diff(tokens) % 100 == 25)


def test_a_short_trace_is_played_again_in_another_order() -> None:
    trace = one_expert_per_token(tokens=[3, 3])
    rows = replay_decode(trace, 2, 30, seed=0).rows
    assert rows.sum(axis=(0, 1)).tolist() == [10] * 6
    firsts = {tuple(step) for step in played(rows)[::3]}
    assert len(firsts) > 1


def test_each_pass_has_its_own_order_of_requests() -> None:
    rows = replay_decode(one_expert_per_token(tokens=[1] * 5), 1, 50, seed=0).rows
    order = np.array(played(rows)).reshape(10, 5)
    cycles = {tuple(np.roll(one, -int(np.argmin(one)))) for one in order}
    assert len(cycles) > 1


def test_every_token_is_equally_likely_at_the_first_step() -> None:
    trace = one_expert_per_token(tokens=[1, 2, 7])
    first = sum(replay_decode(trace, 3, 1, seed=seed).rows[0, 0] for seed in range(3000))
    # 3 of 10 tokens per step: 900 expected each, with a standard deviation of at most 25.
    assert np.abs(first - 900).max() < 100


def test_more_slots_than_requests_share_them_and_say_so() -> None:
    steps = replay_decode(one_expert_per_token(tokens=[2, 1]), 7, 3, seed=0)
    assert (steps.rows.sum(axis=2) == 7).all()
    assert steps.approximate is not None
    assert "2 requests" in steps.approximate


def test_prompts_are_no_decode_steps() -> None:
    with pytest.raises(BadInputError, match="no decode tokens"):
        replay_decode(one_expert_per_token(tokens=[3], phase=Phase.PREFILL), 1, 1, seed=0)


def test_chunks_are_consecutive_prompt_tokens() -> None:
    trace = one_expert_per_token(tokens=[8], phase=Phase.PREFILL)
    steps = replay_prefill(trace, 4, 2, seed=0)
    first, second = (set(step) for step in played(steps.rows))
    assert first | second == set(range(8))
    assert any({(start + at) % 8 for at in range(4)} == first for start in range(8))
    assert steps.kind is StepKind.PREFILL
    assert steps.tokens.tolist() == [4, 4]
    assert steps.approximate is None


def test_short_prompts_share_a_chunk() -> None:
    trace = one_expert_per_token(tokens=[2, 2, 2, 2], phase=Phase.PREFILL)
    for step in played(replay_prefill(trace, 6, 5, seed=3).rows):
        assert len(step) == 6


def test_decode_tokens_stand_in_for_prompts_only_when_asked() -> None:
    trace = one_expert_per_token(tokens=[4])
    with pytest.raises(BadInputError, match="no prompt tokens"):
        replay_prefill(trace, 2, 1, seed=0)
    steps = replay_prefill(trace, 2, 1, seed=0, from_decode=True)
    assert steps.approximate is not None
    assert "stand in" in steps.approximate


def test_a_trace_with_prompts_uses_them_alone() -> None:
    trace = token_trace([[[0]], [[1]]], experts=2, phase=[Phase.PREFILL, Phase.DECODE])
    steps = replay_prefill(trace, 3, 2, seed=0, from_decode=True)
    assert steps.rows[:, 0].tolist() == [[3, 0], [3, 0]]
    assert steps.approximate is not None
    assert "repeats" in steps.approximate


def test_a_mixed_step_holds_a_token_of_each_running_request_and_a_chunk() -> None:
    # Tokens 0 to 5 are prompts, 6 to 9 outputs; token number t chooses expert t alone.
    trace = one_expert_per_token(tokens=[6, 4])
    trace = replace(trace, phase=np.array([Phase.PREFILL] * 6 + [Phase.DECODE] * 4, dtype=np.uint8))
    steps = replay_mixed(trace, 2, 3, 8, seed=0)
    assert steps.kind is StepKind.MIXED
    assert steps.tokens.tolist() == [5] * 8
    assert (steps.rows[:, 0, :6].sum(axis=1) == 3).all()
    assert (steps.rows[:, 0, 6:].sum(axis=1) == 2).all()
    assert steps.approximate == "the trace holds 1 requests with output, which 2 running requests share"


def test_mixed_steps_say_all_that_was_assumed() -> None:
    steps = replay_mixed(one_expert_per_token(tokens=[3]), 2, 2, 1, seed=0, from_decode=True)
    assert steps.approximate is not None
    assert "share" in steps.approximate
    assert "stand in" in steps.approximate
    counts = replay_mixed(count_trace([[[2, 1]]], top_k=1), 2, 512, 1, seed=0)
    assert counts.approximate == SAMPLED[StepKind.MIXED]


@settings(max_examples=80, deadline=None)
@given(trace=token_traces(), concurrency=st.integers(1, 9), steps=st.integers(1, 12), seed=st.integers(0, 9))
def test_rows_of_a_layer_are_tokens_times_top_k(
    trace: TokenTrace, concurrency: int, steps: int, seed: int
) -> None:
    assume((trace.phase == Phase.DECODE).any())
    top_k = trace.header.top_k
    decode = replay_decode(trace, concurrency, steps, seed)
    assert decode.rows.shape == (steps, len(trace.header.layers), trace.header.experts)
    assert decode.rows.dtype == np.int32
    assert (decode.rows.sum(axis=2) == concurrency * top_k).all()
    chunks = replay_prefill(trace, concurrency, steps, seed, from_decode=True)
    assert (chunks.rows.sum(axis=2) == concurrency * top_k).all()
    assert (chunks.rows >= 0).all()


@settings(max_examples=40, deadline=None)
@given(trace=token_traces(padding=True), seed=st.integers(0, 9))
def test_padding_asks_nothing_of_any_expert(trace: TokenTrace, seed: int) -> None:
    decode = trace.phase == Phase.DECODE
    assume(decode.any())
    passes = int(decode.sum())
    rows = replay_decode(trace, 1, passes, seed, spacing=1).rows
    used = (trace.topk_ids[decode] != PADDING).sum(axis=(0, 2))
    assert rows.sum(axis=(0, 2)).tolist() == used.tolist()


@settings(max_examples=60, deadline=None)
@given(trace=count_traces(), tokens=st.integers(1, 40), steps=st.integers(1, 5), seed=st.integers(0, 9))
def test_sampled_rows_are_tokens_that_choose_distinct_experts(
    trace: CountTrace, tokens: int, steps: int, seed: int
) -> None:
    sampled = replay_decode(trace, tokens, steps, seed)
    assert (sampled.rows.sum(axis=2) == tokens * trace.header.top_k).all()
    assert sampled.rows.min() >= 0
    assert sampled.rows.max() <= tokens
    assert sampled.approximate is not None
    assert "independently" in sampled.approximate
    assert replay_prefill(trace, tokens, steps, seed).kind is StepKind.PREFILL


@pytest.mark.parametrize("tokens", [2, 16])
def test_sampled_rows_keep_every_experts_frequency(tokens: int) -> None:
    """Two tokens of two selections are looked up among five experts, sixteen are counted."""
    share = np.array([[1.0, 0.5, 0.3, 0.15, 0.05], [0.4, 0.4, 0.4, 0.4, 0.4]])
    steps = 4000
    rows = independent_rows(share, tokens, steps, np.random.default_rng(0))
    error = rows.mean(axis=0) / tokens - share
    deviation = np.sqrt(share * (1 - share) / (tokens * steps))
    assert np.abs(error / np.maximum(deviation, 1e-12))[share < 1].max() < 4
    assert (rows[:, 0, 0] == tokens).all()
    # Rows of an expert are binomial: their variance is B p (1 - p).
    expected = tokens * share * (1 - share)
    np.testing.assert_allclose(rows.var(axis=0), expected, rtol=0.15, atol=1e-12)


def test_sampling_favours_no_pair_of_equal_experts() -> None:
    rows = independent_rows(np.full((1, 6), 1 / 3), 1, 30_000, np.random.default_rng(1))[:, 0]
    together = (rows.T @ rows) / len(rows)
    pairs = together[np.triu_indices(6, 1)]
    # Two of six experts: each of the 15 pairs is equally likely.
    np.testing.assert_allclose(pairs, 1 / 15, atol=0.007)


def test_the_heaviest_of_equal_experts_is_as_heavy_as_by_chance() -> None:
    """64 tokens, top-8 of 128: compared with tokens drawn one by one."""
    random = np.random.default_rng(2)
    sampled = independent_rows(np.full((1, 128), 1 / 16), 64, 500, random)[:, 0]
    chosen = np.argsort(random.random((500 * 64, 128)), axis=1)[:, :8].reshape(500, -1)
    drawn = np.stack([np.bincount(one, minlength=128) for one in chosen])
    assert sampled.max(axis=1).mean() == pytest.approx(drawn.max(axis=1).mean(), rel=0.05)


def test_frequency_per_token_sums_to_top_k() -> None:
    trace = count_trace([[[6, 3, 3, 0], [3, 3, 3, 3]]], top_k=2)
    assert selection_share(trace).tolist() == [[1.0, 0.5, 0.5, 0.0], [0.5, 0.5, 0.5, 0.5]]


def test_a_frequency_beyond_one_is_shared_out() -> None:
    # Proportion would put expert 0 into 1.6 of one token's two slots.
    assert inclusion_share(np.array([[8, 1, 1]]), 2).tolist() == [[1.0, 0.5, 0.5]]


def test_frequency_is_of_the_phase_that_is_asked_for() -> None:
    trace = token_trace([[[0]], [[1]], [[1]]], experts=2, phase=[0, 1, 1])
    assert selection_share(trace, Phase.PREFILL).tolist() == [[1.0, 0.0]]
    assert selection_share(trace, Phase.DECODE).tolist() == [[0.0, 1.0]]
    with pytest.raises(BadInputError, match="fewer than one token"):
        selection_share(token_trace([[[0]]], experts=2), Phase.PREFILL)


@pytest.mark.parametrize(("concurrency", "steps"), [(0, 1), (1, 0), (-1, 1)])
def test_numbers_below_one_are_refused(concurrency: int, steps: int) -> None:
    trace = one_expert_per_token(tokens=[2])
    with pytest.raises(BadInputError, match="give at least 1"):
        replay_decode(trace, concurrency, steps, seed=0)
    with pytest.raises(BadInputError, match="give at least 1"):
        replay_prefill(trace, concurrency, steps, seed=0)


@needs_shared_data
def test_a_real_trace_replays_fast_and_keeps_its_frequencies() -> None:
    started = time.process_time()
    trace = import_trace(SHARED_DATA / "traces" / "gptoss20b_tokens.npz")
    steps = replay_decode(trace, 64, 2000, seed=0)
    assert time.process_time() - started < 3.0
    assert steps.rows.shape == (2000, 24, 32)
    assert (steps.rows.sum(axis=2) == 256).all()
    # 128,000 draws of 127,201 tokens: nearly every token once.
    assert np.abs(steps.rows.mean(axis=0) / 64 - selection_share(trace)).max() < 0.002
    # Even a few spread-out steps are close: the frequencies of 48 steps at 16, against 3,072 selections.
    few = replay_decode(trace, 16, 48, seed=0)
    error = few.rows.mean(axis=0) / 16 - selection_share(trace)
    assert np.sqrt((error**2).mean()) < 0.015
