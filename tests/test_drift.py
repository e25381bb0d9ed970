"""Drift between two traces: what an old plan loses on new traffic, in predicted milliseconds."""

import json

import numpy as np
import pytest
from placements import placement_dict
from tiny_model import tiny_cost, tiny_model

from placer.drift import Advice, Drift, advise, drift
from placer.errors import BadInputError
from placer.interval import Interval
from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument
from placer.profiler.trace.trace import CountTrace, Phase, TokenTrace, TraceHeader


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def traffic(tiny: ModelSpec, pairs: list[tuple[int, int]], *, tokens: int = 20) -> TokenTrace:
    """One request of decode tokens per pair of experts, which all its tokens choose in every layer."""
    ids = np.repeat(np.array(pairs, dtype=np.uint16), tokens, axis=0)
    T, L = len(ids), len(tiny.moe_layers)
    return TokenTrace(
        header=TraceHeader(tiny.name, tiny.moe_layers, tiny.experts, tiny.top_k, "made up"),
        topk_ids=np.repeat(ids[:, None], L, axis=1),
        request=np.repeat(np.arange(len(pairs), dtype=np.int32), tokens),
        position=np.tile(np.arange(tokens, dtype=np.int32), len(pairs)),
        phase=np.full(T, Phase.DECODE, dtype=np.uint8),
    )


def plan(tiny: ModelSpec, experts: list[int]) -> PlacementDocument:
    """A plan of the same hot experts in every layer, for one running request."""
    document = placement_dict(
        dict.fromkeys(tiny.moe_layers, experts), layers=tiny.moe_layers, experts=tiny.experts
    )
    document["workload"] = {"prompt_tokens": 64, "output_tokens": 32, "concurrency": 1}
    document["kv"] |= {"max_running_requests": 1, "cuda_graph_max_bs": 1}
    return PlacementDocument.model_validate(document)


def drifted(
    tiny: ModelSpec, hot: list[int], first: TokenTrace | CountTrace, second: TokenTrace | CountTrace
) -> Drift:
    return drift(
        plan(tiny, hot),
        tiny,
        tiny_cost(),
        first,
        second,
        worth=0.02,
        prefill_from="none",
        time_limit_s=5.0,
        seed=0,
    )


def test_traffic_that_moved_to_other_experts_is_solved_again(tiny: ModelSpec) -> None:
    """Four layers; base 4 · 10 µs. Two hot experts: the cold side's 20 µs bind. Two cold: 20 + 2 · (100 + 10)."""
    found = drifted(tiny, [0, 1], traffic(tiny, [(0, 1)] * 40), traffic(tiny, [(6, 7)] * 40))
    assert found.home.decode_step_ms == pytest.approx((40 + 4 * 20) / 1e3, rel=1e-4)
    assert found.plan.decode_step_ms == pytest.approx((40 + 4 * 240) / 1e3, rel=1e-4)
    assert found.resolved.decode_step_ms == pytest.approx((40 + 4 * 20) / 1e3, rel=1e-4)
    assert found.saving_ms.mean == pytest.approx(0.880)
    assert found.saving.mean == pytest.approx(0.88, rel=1e-4)
    assert (found.saving.low, found.saving.high) == pytest.approx((0.88, 0.88), rel=1e-4)
    assert found.advice is Advice.RESOLVE
    assert (found.home.coverage, found.plan.coverage, found.resolved.coverage) == (1.0, 0.0, 1.0)
    assert (found.moved_experts, found.hot_total) == (8, 8)
    assert "0.880 ms of a decode step of 1.000 ms" in found.reason


def test_the_same_traffic_keeps_its_plan(tiny: ModelSpec) -> None:
    mix = [(0, 1)] * 30 + [(2, 3)] * 10
    found = drifted(tiny, [0, 1], traffic(tiny, mix), traffic(tiny, mix[::-1]))
    assert found.advice is Advice.KEEP
    assert found.saving.mean == pytest.approx(0.0, abs=1e-9)
    assert found.moved_experts == 0


def test_a_layer_that_was_pinned_stays_pinned_in_the_re_solve(tiny: ModelSpec) -> None:
    """Layers 1 to 3 may move their two hot experts, layer 0 stays all cold: 40 + 240 + 3 · 20 µs."""
    document = plan(tiny, [0, 1]).model_dump(by_alias=True)
    document |= {"pinned": {"0": "none"}, "hot_total": 6}
    document["hot"]["0"] = ()
    found = drift(
        PlacementDocument.model_validate(document),
        tiny,
        tiny_cost(),
        traffic(tiny, [(0, 1)] * 40),
        traffic(tiny, [(6, 7)] * 40),
        worth=0.02,
        prefill_from="none",
        time_limit_s=5.0,
        seed=0,
    )
    assert found.moved_experts == 6
    assert found.resolved.decode_step_ms == pytest.approx((40 + 240 + 3 * 20) / 1e3, rel=1e-4)


@pytest.mark.parametrize("hot", [[], list(range(8))])
def test_a_plan_without_a_choice_is_kept(tiny: ModelSpec, hot: list[int]) -> None:
    found = drifted(tiny, hot, traffic(tiny, [(0, 1)] * 40), traffic(tiny, [(6, 7)] * 40))
    assert (found.advice, found.moved_experts) == (Advice.KEEP, 0)
    assert found.saving.mean == 0.0


@pytest.mark.parametrize(
    ("saving", "advice"),
    [
        (Interval(0.05, 0.01, 0.09), Advice.RESOLVE),
        (Interval(0.05, -0.01, 0.11), Advice.RECORD_MORE),
        (Interval(0.01, 0.005, 0.015), Advice.KEEP),
        (Interval(-0.03, -0.05, -0.01), Advice.KEEP),
        (Interval(0.05, None, None), Advice.RESOLVE),
    ],
)
def test_advice_needs_a_saving_that_is_worth_it_and_sure(saving: Interval, advice: Advice) -> None:
    assert advise(saving, 0.02, few_requests=False) is advice


def test_too_few_requests_never_call_for_a_restart(tiny: ModelSpec) -> None:
    """Ten requests leave three to report on: 88 % would be saved, but of how many requests nobody knows."""
    found = drifted(tiny, [0, 1], traffic(tiny, [(0, 1)] * 10), traffic(tiny, [(6, 7)] * 10))
    assert found.saving.mean == pytest.approx(0.88, rel=1e-4)
    assert found.saving.low is None
    assert found.advice is Advice.RECORD_MORE
    assert advise(Interval(0.01, None, None), 0.02, few_requests=True) is Advice.KEEP


def test_a_placement_made_from_another_trace_than_a_is_noted(tiny: ModelSpec) -> None:
    mix = [(0, 1)] * 40
    document = plan(tiny, [0, 1]).model_dump(by_alias=True) | {"trace": {"source": "elsewhere.npz"}}
    first = traffic(tiny, mix)
    found = drift(
        PlacementDocument.model_validate(document),
        tiny,
        tiny_cost(),
        first,
        traffic(tiny, mix),
        worth=0.02,
        prefill_from="none",
        time_limit_s=5.0,
        seed=0,
    )
    assert f"the placement was made from 'elsewhere.npz', A is {first.header.source!r}" in found.notes


def test_counts_of_one_run_have_no_interval_and_say_why(tiny: ModelSpec) -> None:
    counts = np.zeros((1, 4, 8), dtype=np.int64)
    counts[0, :, [6, 7]] = 500
    header = traffic(tiny, [(0, 1)]).header
    found = drifted(tiny, [0, 1], traffic(tiny, [(0, 1)] * 40), CountTrace(header, counts, np.array([500])))
    assert found.advice is Advice.RESOLVE
    document = found.document()
    assert document["saving"]["low"] is None
    assert "at least 8" in document["null_reasons"]["saving.low"]
    assert any("sampled from counts" in note for note in document["notes"])
    assert any("not split by request" in note for note in document["notes"])
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_fewer_requests_than_parts_are_refused(tiny: ModelSpec) -> None:
    with pytest.raises(BadInputError, match="split by request"):
        drifted(tiny, [0, 1], traffic(tiny, [(0, 1)] * 40), traffic(tiny, [(6, 7)] * 2))
