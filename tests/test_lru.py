"""LRU caches of experts, replayed over a trace."""

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_data import SHARED_DATA, needs_shared_data
from small_traces import count_trace, token_trace, token_traces

from placer.errors import BadInputError
from placer.profiler.trace.importing import import_trace
from placer.profiler.trace.lru import LruStack, consecutive_rows, lru_hit_share, lru_hits
from placer.profiler.trace.selection import coverage, selection_counts
from placer.profiler.trace.trace import Phase


def test_six_tokens_by_hand() -> None:
    # Top-1 of four experts, two slots that begin with experts 0 and 1.
    #   token     2  0  2  3  2  0
    #   held      01 02 02 20 32 23   (most recent last)
    #   hit       -  +  +  -  +  -
    rows = np.zeros((6, 1, 4), dtype=np.int32)
    rows[np.arange(6), 0, [2, 0, 2, 3, 2, 0]] = 1
    depths = LruStack(1, 4).depths(rows)
    assert (depths[np.arange(6), 0, [2, 0, 2, 3, 2, 0]] < 2).tolist() == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]


def test_a_step_larger_than_the_cache_keeps_what_it_found_and_streams_the_rest() -> None:
    # Three experts needed, two slots: 0 and 1 stay however often 2 is streamed past them.
    rows = np.array([[[1, 1, 1, 0]]] * 3, dtype=np.int32)
    assert LruStack(1, 4).depths(rows)[:, 0, :3].tolist() == [[0, 1, 2]] * 3


def test_shares_of_a_trace_by_hand() -> None:
    # One request whose tokens alternate between two of four experts.
    trace = token_trace([[[0]], [[3]]] * 8, experts=4)
    hits = lru_hits(trace, concurrency=1)
    assert hits.steps == 16
    assert hits.hit_share(1).tolist() in ([0.0], [1 / 16])  # never the one that was just used
    assert hits.loads_per_step(2).tolist() == [1 / 16]  # expert 3 once
    assert lru_hit_share(trace, 2, 1).tolist() == [15 / 16]
    assert lru_hit_share(trace, 4, 1).tolist() == [1.0]


def test_selections_weigh_by_rows_and_hits_by_experts() -> None:
    # Three tokens a step choose expert 0, one expert 3 of the same layer; one slot.
    trace = token_trace([[[0]], [[0]], [[0]], [[3]]], experts=4, request=[0, 1, 2, 3])
    hits = lru_hits(trace, concurrency=4)
    assert hits.steps == 1
    assert hits.selection_share(1).tolist() == [0.75]
    assert hits.hit_share(1).tolist() == [0.5]


@given(token_traces(), st.integers(1, 4), st.data())
def test_equals_a_cache_that_is_played_naively(trace, concurrency, data) -> None:
    if not (trace.phase == Phase.DECODE).any():
        with pytest.raises(BadInputError, match="no decode tokens"):
            lru_hit_share(trace, 1, concurrency)
        return
    slots = data.draw(st.integers(0, trace.header.experts))
    rows = np.concatenate(list(consecutive_rows(trace, concurrency, seed=3)))
    hits = lru_hits(trace, concurrency, seed=3)
    for layer in range(len(trace.header.layers)):
        found, needed, selected = _naive(rows[:, layer], slots)
        assert hits.hit_share(slots)[layer] == pytest.approx(found / needed)
        assert hits.loads_per_step(slots)[layer] == pytest.approx((needed - found) / len(rows))
        assert hits.selection_share(slots)[layer] == pytest.approx(selected / rows[:, layer].sum())


def _naive(rows: np.ndarray, slots: int) -> tuple[int, int, int]:
    """Found experts, needed experts and found selections of one layer (rows [S, E]) in an OrderedDict."""
    held = OrderedDict.fromkeys(reversed(range(slots)))  # least recently used first
    last_used = {expert: -expert for expert in range(rows.shape[1])}  # which of the missing is loaded first
    found = needed = selected = 0
    for row in rows:
        step = [int(expert) for expert in np.flatnonzero(row)]
        hit = [expert for expert in held if expert in step]
        found, needed, selected = found + len(hit), needed + len(step), selected + int(row[hit].sum())
        missing = sorted(set(step) - set(hit), key=last_used.__getitem__, reverse=True)
        idle = [expert for expert in held if expert not in step]
        loaded = missing[
            : len(idle)
        ]  # the others are streamed past a cache that is full of what the step needs
        for expert in idle[: len(loaded)]:
            del held[expert]
        for expert in [*reversed(loaded), *hit]:
            held[expert] = None
            held.move_to_end(expert)
        now = max(last_used.values()) + len(step)
        for place, expert in enumerate(sorted(step, key=last_used.__getitem__, reverse=True)):
            last_used[expert] = now - place
    return found, needed, selected


@given(token_traces(), st.integers(1, 4))
def test_more_slots_never_hit_less_and_all_slots_always(trace, concurrency) -> None:
    if not (trace.phase == Phase.DECODE).any():
        return
    hits = lru_hits(trace, concurrency)
    shares = np.array([hits.hit_share(slots) for slots in range(trace.header.experts + 1)])
    assert np.all(np.diff(shares, axis=0) >= 0)
    assert np.all(shares[-1] == 1.0)


def test_counts_are_played_without_order_and_say_so() -> None:
    hits = lru_hits(count_trace([[[60, 20, 10, 10]]], top_k=1), concurrency=1)
    assert "no order" in str(hits.approximate)
    # Drawn independently, the last expert comes again with the sum of squared shares: 0.42.
    assert hits.hit_share(1)[0] == pytest.approx(0.42, abs=0.06)


def test_refuses_more_slots_than_experts() -> None:
    with pytest.raises(BadInputError, match="5 slots"):
        lru_hit_share(token_trace([[[0]]], experts=4), 5, 1)


@needs_shared_data
def test_gpt_oss_one_request_prefers_recency_and_many_prefer_popularity() -> None:
    # Published with the trace's statistics: LRU .625/.893/.939/.980 of one stream at 8/16/19/24 of 32 slots, the
    # hottest experts .502/.797/.873/.955; at 4 streams and more the static choice is as good or better.
    trace = import_trace(SHARED_DATA / "traces" / "gptoss20b_tokens.npz")
    counts = selection_counts(trace)
    one = lru_hits(trace, 1)
    measured = [float(one.hit_share(slots).mean()) for slots in (8, 16, 19, 24)]
    assert measured == pytest.approx([0.625, 0.893, 0.939, 0.980], abs=0.04)
    static = [float(coverage(counts, slots / 32).mean()) for slots in (8, 16, 19, 24)]
    assert static == pytest.approx([0.502, 0.797, 0.873, 0.955], abs=0.01)
    many = lru_hits(trace, 16)
    assert float(many.selection_share(16).mean()) < static[1] < measured[1]
