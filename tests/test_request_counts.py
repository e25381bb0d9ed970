"""Selections by group of requests add up to those of the trace, and keep domains apart."""

import numpy as np
from hypothesis import given, settings
from small_traces import count_trace, token_trace, token_traces

from placer.profiler.trace.request_counts import MOST_GROUPS, request_counts
from placer.profiler.trace.selection import selection_counts
from placer.profiler.trace.trace import PADDING, Phase, TokenTrace


def test_each_request_is_counted_by_itself() -> None:
    trace = token_trace(
        [[[0, 1]], [[1, 2]], [[2, PADDING]]],
        experts=3,
        request=[7, 7, 3],
        domain=[1, 1, 0],
        domains=("a", "b"),
    )
    found = request_counts(trace)
    assert found.counts.tolist() == [[[1, 2, 1]], [[0, 0, 1]]]
    assert found.domain.tolist() == [1, 0]
    assert found.requests == 2


def test_a_phase_keeps_the_requests_that_have_it() -> None:
    trace = token_trace([[[0]], [[1]], [[2]]], experts=3, request=[0, 0, 1], phase=[0, 1, 0])
    assert request_counts(trace, Phase.DECODE).counts.tolist() == [[[0, 1, 0]]]
    assert request_counts(trace, Phase.PREFILL).counts.tolist() == [[[1, 0, 0]], [[0, 0, 1]]]


def test_windows_of_counts_are_its_groups() -> None:
    found = request_counts(count_trace([[[2, 1]], [[0, 1]]], top_k=1))
    assert found.counts.tolist() == [[[2, 1]], [[0, 1]]]
    assert found.domain.tolist() == [-1, -1]


def test_many_requests_are_put_together_within_their_domain() -> None:
    T = 5000
    domain = np.arange(T) % 100 // 99  # one request in a hundred is of the second domain
    trace = token_trace(
        domain[:, None, None],
        experts=2,
        request=list(range(T)),
        domain=domain.tolist(),
        domains=("a", "b"),
    )
    found = request_counts(trace)
    assert len(found.counts) <= MOST_GROUPS
    assert (found.domain == 1).sum() == 5
    # Every group holds selections of its own domain's expert alone.
    assert found.counts.sum(axis=(0, 1)).tolist() == [4950, 50]
    assert (found.counts[found.domain == 0, 0, 1] == 0).all()
    assert found.requests == T


@settings(max_examples=50, deadline=None)
@given(trace=token_traces(padding=True))
def test_groups_add_up_to_the_trace(trace: TokenTrace) -> None:
    np.testing.assert_array_equal(request_counts(trace).counts.sum(axis=0), selection_counts(trace))
