"""Splits keep requests whole and domains mixed; counts are split by window, or dealt out and said so."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small_traces import count_trace, token_trace, token_traces

from placer.errors import BadInputError
from placer.profiler.trace.integrity import check_trace
from placer.profiler.trace.selection import selection_counts
from placer.profiler.trace.split import resampled_requests, split_requests
from placer.profiler.trace.trace import CountTrace, Phase, TokenTrace


def parts_of(trace: TokenTrace, shares: tuple[float, ...], seed: int = 0) -> list[TokenTrace]:
    parts = split_requests(trace, shares, seed)
    assert all(isinstance(part, TokenTrace) for part in parts)
    return [part for part in parts if isinstance(part, TokenTrace)]


def requests(*, count: int, tokens: int = 2, domains: int = 1) -> TokenTrace:
    """``count`` requests of ``tokens`` tokens, dealt round-robin to domains; one layer, top-1 of 4."""
    request = np.repeat(np.arange(count), tokens)
    return token_trace(
        (request % 4)[:, None, None],
        experts=4,
        request=request.tolist(),
        domain=(request % domains).tolist(),
        domains=tuple(f"domain {number}" for number in range(domains)),
    )


def test_ten_requests_are_split_five_two_three() -> None:
    parts = parts_of(requests(count=10), (0.5, 0.2, 0.3))
    assert [np.unique(part.request).size for part in parts] == [5, 2, 3]
    assert [part.tokens for part in parts] == [10, 4, 6]


def test_requests_left_over_are_spread() -> None:
    parts = parts_of(requests(count=7), (0.25, 0.25, 0.25, 0.25))
    assert sorted(np.unique(part.request).size for part in parts) == [1, 2, 2, 2]


def test_every_domain_is_split_alike() -> None:
    parts = parts_of(requests(count=40, domains=4), (0.5, 0.2, 0.3))
    for part, expected in zip(parts, (5, 2, 3), strict=True):
        for domain in range(4):
            assert part.domain is not None
            assert np.unique(part.request[part.domain == domain]).size == expected


def test_domains_of_one_request_do_not_all_fall_to_the_largest_part() -> None:
    parts = parts_of(requests(count=20, domains=20), (0.5, 0.2, 0.3))
    assert [np.unique(part.request).size for part in parts] == [10, 4, 6]


def test_requests_with_and_without_output_are_split_apart() -> None:
    trace = requests(count=40, tokens=1)
    trace = replace(trace, phase=np.where(trace.request < 30, Phase.PREFILL, Phase.DECODE).astype(np.uint8))
    parts = parts_of(trace, (0.5, 0.2, 0.3))
    assert [int((part.phase == Phase.DECODE).sum()) for part in parts] == [5, 2, 3]


def test_the_seed_decides_who_goes_where() -> None:
    trace = requests(count=30)
    first, again, other = (parts_of(trace, (0.5, 0.5), seed)[0].request.tolist() for seed in (1, 1, 2))
    assert first == again != other


@settings(max_examples=60, deadline=None)
@given(trace=token_traces(padding=True), seed=st.integers(0, 5), number=st.integers(1, 3))
def test_parts_are_whole_requests_and_together_the_trace(trace: TokenTrace, seed: int, number: int) -> None:
    names = np.unique(trace.request)
    assume(names.size >= number)
    parts = parts_of(trace, (0.5, 0.2, 0.3)[:number], seed)
    assert sorted(np.concatenate([np.unique(part.request) for part in parts]).tolist()) == names.tolist()
    assert sum(part.tokens for part in parts) == trace.tokens
    for part in parts:
        whole = np.isin(trace.request, np.unique(part.request))
        np.testing.assert_array_equal(part.topk_ids, trace.topk_ids[whole])
        np.testing.assert_array_equal(part.position, trace.position[whole])
        assert part.tokens > 0


def test_fewer_requests_than_parts_cannot_be_split() -> None:
    with pytest.raises(BadInputError, match="holds 2 requests"):
        split_requests(requests(count=2), (0.5, 0.2, 0.3))


@pytest.mark.parametrize("shares", [(), (0.5, 0.0), (1.0, -1.0)])
def test_shares_are_positive(shares: tuple[float, ...]) -> None:
    with pytest.raises(BadInputError, match="shares"):
        split_requests(requests(count=5), shares)


def test_windows_stay_whole() -> None:
    counts = np.arange(10 * 4).reshape(10, 1, 4) + 1
    parts = split_requests(count_trace(counts, top_k=1), (0.5, 0.2, 0.3))
    assert [len(part.counts) for part in parts if isinstance(part, CountTrace)] == [5, 2, 3]
    windows = np.concatenate([part.counts for part in parts if isinstance(part, CountTrace)])
    assert sorted(windows[:, 0, 0].tolist()) == counts[:, 0, 0].tolist()


def test_one_window_is_dealt_out_and_says_that_it_is_not_by_request() -> None:
    counts = np.array([[[400, 300, 200, 100], [250, 250, 250, 250]]])
    trace = count_trace(counts, top_k=2)
    parts = split_requests(trace, (0.5, 0.2, 0.3), seed=3)
    assert [part.tokens for part in parts] == [250, 100, 150]
    np.testing.assert_array_equal(sum(selection_counts(part) for part in parts), counts[0])
    for part in parts:
        check_trace(part, "part")
        assert isinstance(part, CountTrace)
        assert (part.counts.sum(axis=2) == 2 * part.tokens).all()
        assert any("not split by request" in note for note in part.header.notes)
    # Drawn, not scaled: a hypergeometric draw of 500 from 400 : 600 has a standard deviation of 7.7.
    draws = [split_requests(trace, (0.5, 0.5), seed)[0] for seed in range(200)]
    of_first = np.array([selection_counts(part)[0, 0] for part in draws])
    assert abs(of_first.mean() - 200) < 3
    assert 6.5 < of_first.std() < 9


def test_runs_beyond_the_sampler_are_scaled() -> None:
    trace = count_trace([[[3 * 10**9, 10**9]]], top_k=1)
    parts = split_requests(trace, (0.75, 0.25))
    assert selection_counts(parts[0]).tolist() == [[2_250_000_000, 750_000_000]]
    assert selection_counts(parts[1]).tolist() == [[750_000_000, 250_000_000]]


@settings(max_examples=60, deadline=None)
@given(trace=token_traces(), seed=st.integers(0, 99))
def test_a_resample_holds_whole_requests_of_the_trace(trace: TokenTrace, seed: int) -> None:
    drawn = resampled_requests(trace, np.random.default_rng(seed))
    assert isinstance(drawn, TokenTrace)
    check_trace(drawn, "resampled")

    def requests(one: TokenTrace) -> list[bytes]:
        return [one.topk_ids[one.request == number].tobytes() for number in np.unique(one.request)]

    assert len(requests(drawn)) == len(requests(trace))
    assert set(requests(drawn)) <= set(requests(trace))


def test_a_resample_of_counts_draws_windows() -> None:
    trace = count_trace([[[3, 0]], [[0, 5]]], top_k=1)
    drawn = resampled_requests(trace, np.random.default_rng(0))
    assert isinstance(drawn, CountTrace)
    rows = {
        (tuple(counts[0]), int(tokens))
        for counts, tokens in zip(drawn.counts, drawn.window_tokens, strict=True)
    }
    assert rows <= {((3, 0), 3), ((0, 5), 5)}
