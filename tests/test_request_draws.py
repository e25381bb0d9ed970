"""Tokens and prompts of requests drawn with replacement."""

import numpy as np
from small_traces import token_trace

from placer.profiler.trace.request_draws import RequestDraws
from placer.profiler.trace.trace import TokenTrace


def trace(lengths: list[int], prompts: int = 0) -> TokenTrace:
    """A request per length, the first ``prompts`` tokens of each a prompt; two domains in turn."""
    request = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum([0, *lengths[:-1]])
    position = np.arange(request.size) - starts[request]
    return token_trace(
        np.zeros((request.size, 1, 1), dtype=np.uint16),
        experts=1,
        request=request.tolist(),
        phase=np.where(position < prompts, 0, 1).tolist(),
        domain=(request % 2).tolist(),
        domains=("even", "odd"),
    )


def test_each_decode_token_is_equally_likely_in_each_slot() -> None:
    draws = RequestDraws.of(trace([3, 9], prompts=1), {})
    slots = draws.slots(6000, 2, np.random.default_rng(0))
    # Two of three and eight of nine tokens are decoded.
    assert set(np.unique(slots)) == {1, 2, *range(4, 12)}
    assert abs((draws.request[slots] == 0).mean() - 0.2) < 0.02


def test_a_mix_sets_the_share_of_the_tokens() -> None:
    draws = RequestDraws.of(trace([4, 8]), {"even": 0.75, "odd": 0.25})
    random = np.random.default_rng(0)
    assert abs((draws.request[draws.slots(4000, 2, random)] == 0).mean() - 0.75) < 0.02
    chunks = draws.chunks(3000, 6, random, from_decode=True)
    assert abs((draws.request[chunks] == 0).mean() - 0.75) < 0.03
    only = RequestDraws.of(trace([4, 8]), {"odd": 1.0})
    assert set(only.request[only.chunks(10, 6, random, from_decode=True)].ravel()) == {1}


def test_chunks_are_cut_from_whole_prompts() -> None:
    """Prompts of two tokens end to end: every chunk of four holds two whole prompts."""
    draws = RequestDraws.of(trace([5, 5, 5], prompts=2), {})
    chunks = draws.chunks(50, 4, np.random.default_rng(0), from_decode=False)
    assert set((chunks % 5).ravel()) == {0, 1}
    assert np.array_equal(chunks[:, 1], chunks[:, 0] + 1)
    assert np.array_equal(chunks[:, 3], chunks[:, 2] + 1)


def test_a_resample_keeps_the_number_of_requests_of_each_stratum() -> None:
    random = np.random.default_rng(0)
    free = RequestDraws.of(trace([2] * 6), {}).multiplicities(500, random)
    assert free.shape == (500, 6)
    np.testing.assert_allclose(free.sum(axis=1), 0.0, atol=1e-9)
    held = RequestDraws.of(trace([2] * 6), {"even": 0.5, "odd": 0.5}).multiplicities(500, random)
    np.testing.assert_allclose(held[:, ::2].sum(axis=1), 0.0, atol=1e-9)
    # Drawn n times of n: variance 1 - 1/n, made up for by n / (n - 1).
    assert abs(held.var() - 1.0) < 0.15
