"""Which calls a campaign times, and that a call becomes a routing a kernel can run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.errors import BadInputError, MissingComponentError
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.steps import StepKind, Steps
from placer.profiler.timing.call import Call, Role, least_tokens, routing
from placer.profiler.timing.grid import grid_calls, idle_calls, regime_ranges, trace_calls, zipf_calls
from placer.profiler.timing.plan import (
    RegimePrice,
    affordable_calls,
    all_calls,
    essential_calls,
    price_regimes,
    round_seconds,
)
from placer.profiler.timing.residency import choose_residency
from placer.profiler.timing.spec import CampaignSpec

QWEN3 = ExpertShape(hidden_size=2048, expert_intermediate_size=768, experts=128, top_k=8)
SMALL = ExpertShape(hidden_size=64, expert_intermediate_size=32, experts=6, top_k=2)


def test_every_expert_gets_its_rows_and_no_token_an_expert_twice() -> None:
    # 3 + 2 + 1 rows in 3 tokens of two slots each: every slot is used.
    ids = routing(Call((3, 2, 1), 3, Role.GRID, "mix"), SMALL, np.random.default_rng(0))
    assert ids.shape == (3, 2)
    assert sorted(np.unique(ids, return_counts=True)[1].tolist()) == [1, 2, 3]
    assert all(len(set(token)) == 2 for token in ids.tolist())


def test_slots_that_nobody_uses_are_skipped() -> None:
    ids = routing(Call((1,), 5, Role.GRID, "tokens"), SMALL, np.random.default_rng(0))
    assert (ids == -1).sum() == 9


def test_experts_are_drawn_anew_for_every_sample() -> None:
    generator = np.random.default_rng(1)
    call = Call((1, 1), 1, Role.GRID, "active")
    seen = {tuple(sorted(routing(call, QWEN3, generator)[0, :2].tolist())) for _ in range(20)}
    assert len(seen) > 15


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit 2 tokens"):
        routing(Call((3,), 2, Role.GRID, "rows"), SMALL, np.random.default_rng(0))


@given(
    rows=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    spare=st.integers(0, 5),
    seed=st.integers(0, 1000),
)
def test_any_call_that_fits_becomes_a_routing(rows: list[int], spare: int, seed: int) -> None:
    ordered = tuple(sorted(rows, reverse=True))
    tokens = least_tokens(ordered, SMALL.top_k) + spare
    ids = routing(Call(ordered, tokens, Role.GRID, "mix"), SMALL, np.random.default_rng(seed))
    used = ids[ids >= 0]
    assert tuple(sorted(np.unique(used, return_counts=True)[1].tolist(), reverse=True)) == ordered
    for token in ids:
        named = token[token >= 0].tolist()
        assert len(named) == len(set(named))


def test_a_border_splits_the_tokens_of_calls_in_two() -> None:
    assert regime_ranges(None) == ((1, None),)
    assert regime_ranges(64) == ((1, 64), (65, None))


def test_both_regimes_see_the_same_rows_up_to_the_border() -> None:
    calls = grid_calls(QWEN3, border=64)
    below = {call.rows for call in calls if call.tokens <= 64}
    beyond = {call.rows for call in calls if call.tokens > 64}
    for m in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16):
        assert (m,) * 8 in below & beyond
    for m in (32, 64):
        assert (m,) * 4 in below & beyond
    for active in (1, 2, 4, 16, 32):
        assert {(1,) * active, (4,) * active} <= below & beyond
    # 128 rows of one expert take 128 tokens: more than the first regime holds.
    assert (128, 128) in beyond - below


def test_the_second_regime_is_timed_by_padding_calls_to_its_first_token_count() -> None:
    calls = grid_calls(QWEN3, border=64)
    assert Call((1,) * 8, 65, Role.GRID, "rows") in calls
    assert Call((1,) * 8, 1, Role.GRID, "rows") in calls


def test_the_tokens_of_a_call_vary_at_the_same_rows() -> None:
    counts = {call.tokens for call in grid_calls(QWEN3, None) if call.rows == (1, 1, 1, 1)}
    assert len(counts) >= 3


@given(
    experts=st.integers(1, 40),
    top_k=st.integers(1, 8),
    border=st.none() | st.integers(8, 200),
    halvings=st.integers(0, 2),
)
def test_every_planned_call_can_be_routed(
    experts: int, top_k: int, border: int | None, halvings: int
) -> None:
    shape = ExpertShape(64, 32, experts, min(top_k, experts))
    calls = (*grid_calls(shape, border, halvings), *zipf_calls(shape, border, 3, halvings))
    assert len(set(calls)) == len(calls)
    for call in calls:
        assert len(call.rows) <= experts
        assert least_tokens(call.rows, shape.top_k) <= call.tokens
        assert list(call.rows) == sorted(call.rows, reverse=True)


def test_made_up_steps_are_held_out_and_come_from_the_seed() -> None:
    calls = zipf_calls(QWEN3, 64, seed=0)
    assert {call.role for call in calls} == {Role.HELDOUT}
    assert calls == zipf_calls(QWEN3, 64, seed=0)
    assert calls != zipf_calls(QWEN3, 64, seed=1)
    assert min(call.tokens for call in calls) == 1
    assert sum(call.tokens > 64 for call in calls) >= 8


def steps(rows: np.ndarray, tokens: list[int]) -> Steps:
    return Steps(rows.astype(np.int32), np.array(tokens), StepKind.DECODE)


def test_steps_of_a_trace_are_held_out_half_without_the_busiest_experts() -> None:
    # One layer, two tokens: experts 0 and 1 take two rows each, experts 2 and 3 none, or the other way.
    rows = np.array([[[2, 2, 0, 0, 0, 0]], [[2, 1, 1, 0, 0, 0]]])
    calls = trace_calls(SMALL, steps(rows, [2, 2]), seed=0, limit=20)
    assert {call.rows for call in calls} <= {(2, 2), (2, 1, 1)}
    # Experts 0, 1, 2 are the busiest half; without them nothing is left, and nothing is not timed.
    assert {call.source for call in calls} == {"trace"}


def test_a_trace_of_another_model_is_refused() -> None:
    with pytest.raises(BadInputError, match="4 experts per layer and the model 6"):
        trace_calls(SMALL, steps(np.ones((1, 1, 4)), [2]), seed=0)
    with pytest.raises(BadInputError, match="more than top-2 allows"):
        trace_calls(SMALL, steps(np.ones((1, 1, 6)), [2]), seed=0)


def test_steps_too_large_to_time_are_passed_over() -> None:
    assert trace_calls(SMALL, steps(np.full((1, 1, 6), 1000), [4096]), seed=0) == ()


def test_calls_without_rows_are_timed_in_every_regime() -> None:
    below, beyond = ([call for call in idle_calls(64) if (call.tokens <= 64) == few] for few in (True, False))
    assert [call.tokens for call in below] == [1, 32, 64]
    assert [call.tokens for call in beyond] == [65, 130, 260, 1024]
    assert all(call.rows == () and call.role is Role.IDLE for call in below + beyond)
    # Such a call skips every slot.
    assert (routing(below[1], QWEN3, np.random.default_rng(0)) == -1).all()


def test_weights_fill_three_caches_or_what_memory_allows() -> None:
    # 100 MB layers, a 300 MB cache: nine layers; 1 GB free holds six at 60 %.
    assert choose_residency(100, 300, 100_000, None).layers >= 9
    short = choose_residency(100_000_000, 300_000_000, 1_000_000_000, None)
    assert short.layers == 6
    assert short.note is not None
    assert "6 layers" in short.note
    with pytest.raises(MissingComponentError, match="a layer of experts takes"):
        choose_residency(2 * 2**30, 0, 2**30, None)


def test_a_grid_is_thinned_until_fifteen_rounds_fit() -> None:
    spec = CampaignSpec("cpu", "torch", 1, 1, QWEN3, 0, 90.0)
    prices = (RegimePrice(None, expert_us=100.0, row_us=200.0),)
    full, no_note = affordable_calls(spec, None, prices, seconds=1000.0)
    # The same calls in a fiftieth of what sixteen rounds of them take.
    tight = round_seconds(full, prices) * 16 / 50
    thinned, note = affordable_calls(spec, None, prices, tight)
    assert no_note is None
    assert note is not None
    assert round_seconds(thinned, prices) < round_seconds(full, prices) / 2
    # Rows stay: what is thinned is how many experts have them.
    assert {call.rows[0] for call in thinned if call.rows} >= {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 256}


def test_with_time_to_spare_made_up_steps_are_drawn_more_often() -> None:
    spec = CampaignSpec("cpu", "torch", 1, 1, QWEN3, 0, 90.0)
    prices = (RegimePrice(None, expert_us=100.0, row_us=200.0),)
    # Sixteen rounds of the grid with one draw of every step, and a little more.
    once_s = 16.2 * round_seconds(all_calls(spec, None, 0, 1), prices)
    heldout = [
        sum(call.role is Role.HELDOUT for call in affordable_calls(spec, None, prices, seconds)[0])
        for seconds in (once_s, 10 * once_s)
    ]
    # Three draws of the same steps; two draws of one token are often the same call.
    assert 2 * heldout[0] < heldout[1] <= 3 * heldout[0]


def test_every_regime_keeps_what_a_fit_needs() -> None:
    calls = (*grid_calls(QWEN3, 64), *zipf_calls(QWEN3, 64, seed=0))
    kept = [calls[index] for index in essential_calls(calls, 64)]
    for inside in ([c for c in kept if c.tokens <= 64], [c for c in kept if c.tokens > 64]):
        assert sum(c.role is Role.GRID for c in inside) == 12
        assert sum(c.role is Role.HELDOUT for c in inside) == 6


def test_a_regime_is_priced_from_two_calls() -> None:
    # 300 + 200 per row: one row of four experts costs 2000, eight cost 7600.
    times = {(1,) * 4: 2000.0, (8,) * 4: 7600.0}
    (price,) = price_regimes(QWEN3, None, lambda call: times[call.rows])
    assert (price.expert_us, price.row_us) == (300.0, 200.0)
