"""The joint decision on a small model: right on cases a reader can check, safe on all others."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import line, tiny_cost, tiny_model

from placer.errors import BadInputError, InfeasibleError
from placer.level import levels
from placer.model.expert_share import expert_share_bytes
from placer.model.spec import ModelSpec
from placer.profiler.cost import CostModel
from placer.profiler.trace.trace import Phase, TokenTrace, TraceHeader
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solving import solve
from placer.units import parse_size
from placer.untraced import solve_untraced
from placer.workload import Workload

WORKLOAD = Workload(prompt_tokens=64, output_tokens=32, concurrency=4)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def routed(model: ModelSpec, choose: Callable[[np.random.Generator, int], list[int]]) -> TokenTrace:
    """A trace of 24 requests, 16 prompt and 48 output tokens each; ``choose`` routes a token in a layer."""
    random = np.random.default_rng(5)
    requests, length = 24, 64
    L = len(model.moe_layers)
    ids = np.array(
        [[choose(random, layer) for layer in range(L)] for _ in range(requests * length)], dtype=np.uint16
    )
    return TokenTrace(
        header=TraceHeader(model.name, model.moe_layers, model.experts, model.top_k, "made up"),
        topk_ids=ids,
        request=np.repeat(np.arange(requests, dtype=np.int32), length),
        position=np.tile(np.arange(length, dtype=np.int32), requests),
        phase=np.tile(np.array([Phase.PREFILL] * 16 + [Phase.DECODE] * 48, dtype=np.uint8), requests),
    )


def last_two(random: np.random.Generator, _layer: int) -> list[int]:
    """Nine tokens in ten take experts 6 and 7."""
    return [6, 7] if random.random() < 0.9 else random.choice(6, size=2, replace=False).tolist()


def room_for(model: ModelSpec, experts: int) -> int:
    """The budget in which one running request leaves room for so many hot experts."""
    level = levels(
        model,
        WORKLOAD,
        tp=1,
        budget_bytes=64 * 2**30,
        max_running=1,
        min_kv_tokens=0,
        kv_dtypes=("bf16",),
    )[0]
    return 64 * 2**30 - level.ledger.unused_bytes + experts * expert_share_bytes(model, 1)


def solved(model: ModelSpec, trace: TokenTrace, cost: CostModel | None = None, **changes: object) -> Solved:
    request = SolveRequest(WORKLOAD, room_for(model, 8), max_running=1)
    return solve(model, trace, cost or tiny_cost(), replace(request, **changes))  # type: ignore[arg-type]


def test_skewed_routing_puts_the_busy_experts_on_the_gpu(tiny: ModelSpec) -> None:
    answer = solved(tiny, routed(tiny, last_two))
    # Room for eight experts, and the same two of each of four layers are the busy ones.
    assert np.flatnonzero(answer.hot.any(axis=0)).tolist() == [6, 7]
    assert answer.hot.sum() == 8
    assert answer.coverage == pytest.approx(0.9, abs=0.03)
    assert answer.uniform_null == 0.25
    # The runtime's default holds experts 0 and 1 and serves nearly all from the CPU.
    assert answer.prediction.decode_step_ms < 0.5 * answer.baselines["uniform"].decode_step_ms


@pytest.mark.parametrize("solver", ["auto", "highs", "cbc"])
def test_every_solver_returns_the_same_plan(tiny: ModelSpec, solver: str) -> None:
    answer = solved(tiny, routed(tiny, last_two), solver=solver, gap=1e-4)
    assert answer.gap is not None
    assert answer.gap <= 1e-4
    assert np.flatnonzero(answer.hot.any(axis=0)).tolist() == [6, 7]


def test_the_same_request_gives_the_same_answer(tiny: ModelSpec) -> None:
    first, second = (solved(tiny, routed(tiny, last_two)) for _ in range(2))
    assert np.array_equal(first.hot, second.hot)
    assert first.prediction == second.prediction
    assert first.objective_us == second.objective_us


def test_the_answer_is_never_slower_than_a_baseline_on_the_choosing_requests(tiny: ModelSpec) -> None:
    # Uniform routing: no plan is better than another, and the reported times say so.
    answer = solved(tiny, routed(tiny, lambda random, _: random.choice(8, size=2, replace=False).tolist()))
    assert answer.prediction.decode_step_ms == pytest.approx(
        answer.baselines["frequency"].decode_step_ms, rel=0.05
    )


def test_a_slow_gpu_leaves_experts_on_the_cpu(tiny: ModelSpec) -> None:
    # Hot experts cost ten times what cold ones do: nothing should be hot, whatever the room.
    answer = solved(tiny, routed(tiny, last_two), tiny_cost(hot=line(50.0, 1000.0, 100.0)))
    assert not answer.hot.any()
    assert answer.chosen == "plan"


def test_running_requests_are_decided_with_the_experts(tiny: ModelSpec) -> None:
    # Steps cost the same at any batch here, so all four clients run together if memory allows.
    flat = tiny_cost(cold=line(20.0, 100.0, 0.0), hot=line(5.0, 2.0, 0.0))
    answer = solved(tiny, routed(tiny, last_two), flat, max_running=None, budget_bytes=8 * 2**30)
    assert answer.level.settings.max_running_requests == 4
    assert answer.levels_total == 4


def test_a_target_that_no_level_meets_is_named_with_what_is_reached(tiny: ModelSpec) -> None:
    tight = Workload(64, 32, 4, slo_tpot_ms=0.001)
    with pytest.raises(InfeasibleError, match=r"--slo-tpot of 0.001 ms \(best level reaches"):
        solved(tiny, routed(tiny, last_two), workload=tight)


def test_the_bound_leaves_out_settings_that_miss_the_target(tiny: ModelSpec) -> None:
    flat = tiny_cost(cold=line(20.0, 100.0, 30.0), hot=line(5.0, 2.0, 1.0))
    free = solved(tiny, routed(tiny, last_two), flat, max_running=None, budget_bytes=8 * 2**30, frontier=True)
    assert free.level.settings.max_running_requests == 4
    fastest = free.frontier[0]
    target = (fastest.prediction.tpot_ms_p95 + free.prediction.tpot_ms_p95) / 2
    assert fastest.prediction.tpot_ms_p95 < free.prediction.tpot_ms_p95
    kept = solved(
        tiny,
        routed(tiny, last_two),
        flat,
        max_running=None,
        budget_bytes=8 * 2**30,
        workload=Workload(64, 32, 4, slo_tpot_ms=target),
    )
    assert kept.levels_missed > 0
    assert kept.gap is not None
    assert kept.gap <= 0.005
    assert kept.status == "optimal"
    assert any("best plan misses" in note for note in kept.notes)


def test_a_loose_target_changes_nothing(tiny: ModelSpec) -> None:
    loose = Workload(64, 32, 4, slo_tpot_ms=1e6, slo_ttft_ms=1e6)
    assert np.array_equal(
        solved(tiny, routed(tiny, last_two), workload=loose).hot, solved(tiny, routed(tiny, last_two)).hot
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"max_running": 0},
        {"max_running": 5},
        {"min_kv_tokens": -1},
        {"gap": 0.0},
        {"gap": 2.0},
        {"time_limit_s": -1.0},
    ],
)
def test_settings_out_of_range_are_refused(tiny: ModelSpec, changes: dict[str, object]) -> None:
    with pytest.raises(BadInputError):
        solved(tiny, routed(tiny, last_two), **changes)


@pytest.mark.parametrize("values", [(0, 32, 4), (64, 0, 4), (64, 1, 4), (64, 32, 0)])
def test_a_workload_out_of_range_is_refused(values: tuple[int, int, int]) -> None:
    with pytest.raises(BadInputError):
        Workload(*values)


def test_without_a_trace_every_layer_holds_the_same_first_experts(tiny: ModelSpec) -> None:
    request = SolveRequest(WORKLOAD, room_for(tiny, 10), max_running=1)
    answer = solve_untraced(tiny, tiny_cost(), request)
    # Ten experts of room are two in each of four layers.
    assert answer.hot.tolist() == [[True] * 2 + [False] * 6] * 4
    assert answer.bound_us is None
    assert any("uniform" in note for note in answer.notes)


def test_without_a_trace_targets_are_judged_on_the_figures_that_are_printed(tiny: ModelSpec) -> None:
    # Five requests per second mostly run alone, so steps of one request are what their TPOT is made of.
    def at_most(tpot_ms: float) -> Solved:
        workload = Workload(64, 32, 4, rate_per_s=5.0, slo_tpot_ms=tpot_ms)
        return solve_untraced(tiny, tiny_cost(), SolveRequest(workload, room_for(tiny, 10), max_running=4))

    reached = at_most(1e6).prediction
    assert reached.tpot_ms_p95 < 0.8 * reached.decode_step_ms
    kept = at_most(1.0001 * reached.tpot_ms_p95)
    assert kept.prediction.tpot_ms_p95 == reached.tpot_ms_p95


def test_the_multiplier_says_what_a_larger_budget_gains(tiny: ModelSpec) -> None:
    def popular(random: np.random.Generator, _layer: int) -> list[int]:
        keys = np.log(1.0 / np.arange(1, 9)) + random.gumbel(size=8)
        return np.argsort(-keys)[:2].tolist()

    trace = routed(tiny, popular)

    def at(experts: int) -> Solved:
        request = SolveRequest(
            WORKLOAD, room_for(tiny, experts), max_running=1, chunk_tokens=64, gap=0.001, prefill_from="trace"
        )
        return solve(tiny, trace, tiny_cost(), request)

    less, middle, more = at(15), at(16), at(17)
    assert middle.sensitivity is not None
    assert middle.sensitivity.price_us_per_gib is not None
    expert_us = middle.sensitivity.price_us_per_gib * middle.sensitivity.expert_bytes / 2**30
    assert less.objective_us is not None
    assert middle.objective_us is not None
    assert more.objective_us is not None
    # The multiplier lies between what the last expert saved and what the next one saves, up to the gap.
    slack = 0.002 * middle.objective_us
    assert middle.objective_us - expert_us <= more.objective_us + slack
    assert middle.objective_us + expert_us <= less.objective_us + slack
    # A single expert's own value agrees with the solver that had one more or one less.
    value = middle.sensitivity.value_us
    assert value[~middle.hot].max() == pytest.approx(middle.objective_us - more.objective_us, rel=0.3)


def test_pinned_layers_stay_as_pinned_in_the_plan_and_in_every_baseline(tiny: ModelSpec) -> None:
    trace = routed(tiny, last_two)
    request = SolveRequest(
        WORKLOAD,
        room_for(tiny, 14),
        max_running=1,
        chunk_tokens=64,
        prefill_from="trace",
        pins={1: True, 2: False},
    )
    solved = solve(tiny, trace, tiny_cost(), request)
    for mask in (solved.hot, *solved.baseline_masks.values()):
        assert mask[1].all()
        assert not mask[2].any()
        assert mask.sum() <= solved.level.room_experts
    # The other places go to experts 6 and 7 of layers 0 and 3 first.
    assert solved.hot[[0, 3]][:, 6:].all()


def test_pins_beyond_the_room_or_the_model_are_refused(tiny: ModelSpec) -> None:
    trace = routed(tiny, last_two)
    room = room_for(tiny, 14)
    pinned = SolveRequest(WORKLOAD, room, pins={0: True, 1: True})
    with pytest.raises(
        InfeasibleError, match="--pin keeps 16 experts hot, the budget has room for"
    ) as caught:
        solve(tiny, trace, tiny_cost(), pinned)
    _, _, size = caught.value.hint.rpartition("--hbm-budget of at least ")
    assert solve(tiny, trace, tiny_cost(), replace(pinned, budget_bytes=parse_size(size))).hot[:2].all()
    # No budget is more than the GPU has.
    with pytest.raises(InfeasibleError) as caught:
        solve(tiny, trace, tiny_cost(), replace(pinned, device_bytes=room))
    assert caught.value.hint == f"any one of these fits: pin fewer layers; a GPU with {size[:-3]} GiB usable"
    with pytest.raises(BadInputError, match="layer 4, which is not a MoE layer"):
        solve(tiny, trace, tiny_cost(), SolveRequest(WORKLOAD, room, pins={4: True}))


def test_the_frontier_has_a_point_for_every_number_of_running_requests(tiny: ModelSpec) -> None:
    trace = routed(tiny, last_two)
    request = SolveRequest(WORKLOAD, room_for(tiny, 14), frontier=True, prefill_from="trace")
    solved = solve(tiny, trace, tiny_cost(), request)
    running = [point.settings.max_running_requests for point in solved.frontier]
    assert running == sorted(set(running))
    assert [point.settings for point in solved.frontier].count(solved.level.settings) == 1
    tokens = [point.settings.kv_tokens for point in solved.frontier]
    assert tokens == sorted(tokens)
    for point in solved.frontier:
        assert point.bound_us <= point.objective_us * (1 + 1e-9)
        assert min(each.objective_us for each in solved.frontier) <= point.objective_us


def test_the_chosen_level_is_written_as_a_program(tiny: ModelSpec, tmp_path: Path) -> None:
    request = SolveRequest(WORKLOAD, room_for(tiny, 14), max_running=1, lp_path=tmp_path / "level.lp")
    solve(tiny, routed(tiny, last_two), tiny_cost(), request)
    text = (tmp_path / "level.lp").read_text()
    assert text.startswith("\\ objective: microseconds per output token, without the constant ")
    assert "budget:" in text
    assert "x_3_7" in text


def limited(tiny: ModelSpec, room: int, **limits: Any) -> SolveRequest:
    """One running request and one chunk, so that ``room`` hot experts fit one level."""
    return SolveRequest(
        WORKLOAD, room_for(tiny, room), max_running=1, chunk_tokens=64, prefill_from="trace", **limits
    )


def test_every_layer_keeps_its_limits_in_the_plan_and_in_every_baseline(tiny: ModelSpec) -> None:
    request = limited(tiny, 14, least_hot=1, most_hot=5)
    solved = solve(tiny, routed(tiny, last_two), tiny_cost(), request)
    for mask in (solved.hot, *solved.baseline_masks.values()):
        assert ((mask.sum(axis=1) >= 1) & (mask.sum(axis=1) <= 5)).all()
        assert mask.sum() <= solved.level.room_experts


def test_limits_and_pins_hold_together(tiny: ModelSpec) -> None:
    request = limited(tiny, 14, least_hot=2, pins={0: True})
    solved = solve(tiny, routed(tiny, last_two), tiny_cost(), request)
    for mask in (solved.hot, *solved.baseline_masks.values()):
        assert mask[0].all()
        assert (mask[1:].sum(axis=1) >= 2).all()
        assert mask.sum() <= solved.level.room_experts


def test_pinned_layers_are_exempt_from_the_limits_of_all_others(tiny: ModelSpec) -> None:
    request = limited(tiny, 14, least_hot=1, most_hot=3, pins={0: True, 2: False})
    solved = solve(tiny, routed(tiny, last_two), tiny_cost(), request)
    for mask in (solved.hot, *solved.baseline_masks.values()):
        counts = mask.sum(axis=1)
        assert (counts[0], counts[2]) == (8, 0)
        assert ((counts[[1, 3]] >= 1) & (counts[[1, 3]] <= 3)).all()


def test_limits_beyond_the_room_name_the_smallest_changes(tiny: ModelSpec) -> None:
    trace = routed(tiny, last_two)
    # Pinned 8 and 3 each in the other three layers: 17 in a room for 14.
    with pytest.raises(
        InfeasibleError, match="--pin and --min-hot-per-layer 3 keep 17 experts hot"
    ) as caught:
        solve(tiny, trace, tiny_cost(), limited(tiny, 14, least_hot=3, pins={0: True}))
    assert "--min-hot-per-layer of at most 2" in caught.value.hint
    enough = parse_size(caught.value.hint.rpartition(" ")[2])
    request = replace(limited(tiny, 14, least_hot=3, pins={0: True}), budget_bytes=enough)
    # Told in hundredths of a GiB, it may hold more than the 17, but a hundredth less holds fewer.
    assert solve(tiny, trace, tiny_cost(), request).hot.sum(axis=1).min() >= 3
    with pytest.raises(InfeasibleError):
        solve(tiny, trace, tiny_cost(), replace(request, budget_bytes=enough - 2**30 // 100 - 1))
    # Without pins the ledger itself says what fits: the room was for fewer than five in each layer.
    with pytest.raises(InfeasibleError, match="5 hot experts per layer") as caught:
        solve(tiny, trace, tiny_cost(), limited(tiny, 14, least_hot=5))
    assert "--min-hot-per-layer of at most" in caught.value.hint


def test_limits_that_no_layer_can_have_are_refused(tiny: ModelSpec) -> None:
    for limits, said in (
        ({"least_hot": 9}, "--min-hot-per-layer is 9"),
        ({"most_hot": -1}, "--max-hot-per-layer is -1"),
        ({"least_hot": 4, "most_hot": 3}, "--min-hot-per-layer 4 exceeds --max-hot-per-layer 3"),
    ):
        with pytest.raises(BadInputError, match=said):
            solve(tiny, routed(tiny, last_two), tiny_cost(), limited(tiny, 14, **limits))


def test_without_a_trace_the_equal_count_keeps_the_limits(tiny: ModelSpec) -> None:
    solved = solve_untraced(tiny, tiny_cost(), limited(tiny, 14, most_hot=2))
    assert set(solved.hot.sum(axis=1)) <= {0, 1, 2}
    solved = solve_untraced(tiny, tiny_cost(), limited(tiny, 14, least_hot=3))
    assert solved.hot.sum(axis=1).min() >= 3
