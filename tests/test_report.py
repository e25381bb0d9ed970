"""What a report shows, as data: every part from hand-made placements, what is absent said with its cure."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from placements import figures, placement, placement_dict
from planned import planned
from profiles import SHAPE, profile
from reported import DOMAINS, NAME, ReportedJob
from tiny_model import tiny_model

from placer.baselines import BASELINES
from placer.errors import BadInputError
from placer.exports.runtimes import RUNTIMES, export_placement
from placer.placement import write_placement
from placer.reports.absent import Absent
from placer.reports.baseline import placement_rows
from placer.reports.colour import is_dashed, part_colour, placement_colour
from placer.reports.cost_scatter import cost_scatters
from placer.reports.domain import domain_tables
from placer.reports.frontier import Frontier, frontier
from placer.reports.heat_map import heat_map
from placer.reports.launch import launches
from placer.reports.layer_time import ALL_COLD, ALL_HOT, COLD, LayerTimes, layer_times
from placer.reports.ledger import hbm_ledger, host_ledger
from placer.reports.moving import MovingSets, moving_sets
from placer.reports.origin import origins
from placer.reports.report import make_report
from placer.reports.trace_score import TraceScore
from placer.reports.what_if import WhatIfTable, what_if_table

VALUES = {"3": [4.0, 1.0, 2.0], "5": [8.0, 16.0, 0.5]}
SENSITIVITY = {
    "expert_bytes_per_gpu": 60,
    "price_us_per_gib": 1.0,
    "tokens_per_s_per_gib": 1.0,
    "value_us": VALUES,
}


def test_the_heat_map_tells_hot_from_cold_and_keeps_every_value() -> None:
    heat = heat_map(placement({3: [0], 5: [1, 0]}, layers=[3, 5], experts=3, sensitivity=SENSITIVITY))
    nan = np.nan
    np.testing.assert_array_equal(heat.side(True), [[4, nan, nan], [8, 16, nan]])
    np.testing.assert_array_equal(heat.side(False), [[nan, 1, 2], [nan, nan, 0.5]])
    assert heat.layers == (3, 5)
    assert 8 < heat.strongest_us <= 16


def test_without_values_the_heat_map_still_tells_hot_from_cold() -> None:
    heat = heat_map(placement({3: [0]}, layers=[3, 5], experts=2))
    assert heat.value_us is None
    np.testing.assert_array_equal(np.isnan(heat.side(True)), [[False, True], [True, True]])


@pytest.mark.parametrize(
    ("values", "strongest"), [([0.0, 0.0], 1.0), ([-3.0, -1.0], 1.0), ([-3.0, 5.0], 5.0)]
)
def test_where_little_is_worth_anything_there_is_still_a_scale(values: list[float], strongest: float) -> None:
    stated = {**SENSITIVITY, "value_us": {"3": values}}
    heat = heat_map(placement({3: [0]}, layers=[3], experts=2, sensitivity=stated))
    assert heat.strongest_us == pytest.approx(strongest, rel=0.05)


def test_a_ledger_is_largest_first_with_what_is_unused_last_and_zeros_apart() -> None:
    ledger = {"dense": 0, "unused": 700, "attention": 100, "hot_experts": 200}
    ledgers = placement({3: [0]}, layers=[3], experts=2, hbm={"budget_bytes_per_gpu": 1000, "ledger": ledger})
    shown = hbm_ledger(ledgers)
    assert shown.lines == (("hot experts", 200), ("attention", 100), ("unused", 700))
    assert shown.zero == ("dense",)
    assert shown.total_bytes == 1000
    assert shown.share(200) == 0.2
    assert host_ledger(ledgers).lines == (("experts", 1000), ("staging", 24))


def test_the_frontier_is_ordered_and_knows_the_plan_or_says_how_to_get_it() -> None:
    point = {
        "kv_dtype": "bf16",
        "chunked_prefill_size": 2048,
        "hot_experts": 1,
        "tpot_ms_p95": 50.0,
        "ttft_ms_p95": 900.0,
        "objective_us": 100.0,
        "bound_us": 99.0,
    }
    points = [
        {
            **point,
            "max_running_requests": 9,
            "kv_tokens": 6000,
            "output_tokens_per_s": 90.0,
            "chosen": False,
        },
        {**point, "max_running_requests": 8, "kv_tokens": 5120, "output_tokens_per_s": 99.0, "chosen": True},
    ]
    found = frontier(placement({3: [0]}, layers=[3], experts=2, frontier=points))
    assert isinstance(found, Frontier)
    assert [each.kv_tokens for each in found.points] == [5120, 6000]
    assert [each.max_running_requests for each in found.chosen] == [8]
    missing = frontier(placement({3: [0]}, layers=[3], experts=2))
    assert isinstance(missing, Absent)
    assert "--frontier" in missing.cure


def test_every_timed_call_is_in_the_scatter_once_beside_its_prediction() -> None:
    """The profile's calls follow its cost model exactly, so each measured time is the predicted one."""
    made = profile()
    scatters = cost_scatters(made)
    assert not isinstance(scatters, Absent)
    (scatter,) = scatters
    assert sum(len(calls.measured_us) for calls in scatter.calls) == len(made.cpu.points)
    assert {calls.use for calls in scatter.calls} == {"report", "choose", "fit"}
    for calls in scatter.calls:
        np.testing.assert_allclose(calls.predicted_us, calls.measured_us, rtol=1e-3)
        assert (calls.low_us <= calls.measured_us).all()
        assert (calls.measured_us <= calls.high_us).all()
    assert isinstance(cost_scatters(None), Absent)


def test_layers_are_split_where_the_placement_says_and_whole_otherwise() -> None:
    whole = {**figures(), "per_layer_ms": [3.0, 4.0], "provenance": {"cold": "fitted"}}
    beside = {"uniform": {**figures(), "per_layer_ms": [6.0, 8.0]}}
    document = placement({3: [0]}, layers=[3, 5], experts=2, predicted=whole, baselines=beside)
    times = layer_times(document)
    assert isinstance(times, LayerTimes)
    assert {name: part.tolist() for name, part in times.parts.items()} == {"MoE layer": [3.0, 4.0]}
    assert times.beside["uniform"].tolist() == [6.0, 8.0]
    split = {
        "base": 1.0,
        "attention_kv": 0.5,
        "hot": [1.0, 2.0],
        "cold_wait": [1.5, 2.0],
        "transfer": [0.5, 0.0],
        "cold": [2.5, 4.0],
    }
    times = layer_times(
        placement({3: [0]}, layers=[3, 5], experts=2, predicted={**whole, "time_split": split})
    )
    assert isinstance(times, LayerTimes)
    assert list(times.parts) == ["hot", "waiting for cold", "transfer"]
    np.testing.assert_allclose(sum(times.parts.values()), whole["per_layer_ms"])
    assert times.beside["cold, beside the hot"].tolist() == [2.5, 4.0]
    assert times.outside_ms == {
        "everything outside the experts": 1.0,
        "attention for the KV that it reads": 0.5,
    }
    assert isinstance(layer_times(placement({3: [0]}, layers=[3, 5], experts=2)), Absent)


def test_lines_look_unlike_the_bars_that_they_cross_and_unlike_each_other() -> None:
    lines = [
        (placement_colour(name), is_dashed(name)) for name in (*BASELINES, COLD, ALL_HOT, ALL_COLD, "another")
    ]
    bars = {part_colour(name) for name in ("hot", "waiting for cold", "transfer", "MoE layer")}
    assert len(set(lines)) == len(lines)
    assert not bars & {colour for colour, _ in lines}


def test_a_baseline_is_slower_by_its_tokens_per_second() -> None:
    slower = {"uniform": {**figures(), "output_tokens_per_s": 320.0}}
    rows = placement_rows(placement({3: [0]}, layers=[3], experts=2, baselines=slower))
    assert not isinstance(rows, Absent)
    assert [(row.name, row.throughput_gain) for row in rows] == [("this plan", ""), ("uniform", "+25.0%")]
    assert rows[0].ttft_p95 == "unknown"
    assert isinstance(placement_rows(placement({3: [0]}, layers=[3], experts=2, baselines={})), Absent)
    all_hot = placement_rows(placement({3: [0, 1]}, layers=[3], experts=2, baselines=slower))
    assert isinstance(all_hot, Absent)
    assert all_hot.why.startswith("every expert is hot")


def test_every_number_has_an_origin_and_an_unknown_one_its_reason() -> None:
    document = placement({3: [0]}, layers=[3], experts=2)
    rows = {row.what: row for row in origins(document, profile())}
    assert all(row.origin for row in rows.values())
    assert rows["decode step"].value == "20.00 ms"
    assert rows["decode step"].origin == "cold: fitted; hot: datasheet"
    assert rows["TTFT p95"] == dataclasses.replace(
        rows["TTFT p95"], value="unknown", origin="prefill was not replayed"
    )
    assert rows["TTFT target, p95"].origin == "no target was given"
    assert rows["GPU"].origin == "datasheet"
    assert "held-out calls" in rows["its mean error"].origin


def test_commands_are_those_that_the_export_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = tiny_model(tmp_path / "model")
    path = tmp_path / "a plan.json"
    write_placement(planned(model, {layer: [0] for layer in model.moe_layers}), path)
    before = sorted(tmp_path.rglob("*"))
    first, *others = launches(path)
    assert sorted(tmp_path.rglob("*")) == before
    assert len(others) == len(RUNTIMES) - 1
    assert first.commands == (
        f"placer export '{path}' --runtime sglang-kt -o sglang-kt",
        export_placement(path, Path("sglang-kt"), runtime="sglang-kt").launch_line,
    )


def test_a_runtime_that_cannot_run_the_plan_says_why(job_reported: ReportedJob) -> None:
    first, *_ = launches(job_reported.placement)
    assert first.commands == ()
    assert "torch's CPU kernel" in first.refused


def test_domains_come_from_the_trace_and_from_a_plan_for_the_worst_of_them(job_reported: ReportedJob) -> None:
    report = make_report(
        job_reported.placement,
        profile=job_reported.profile,
        trace=job_reported.trace,
        model=job_reported.model,
    )
    assert not isinstance(report.domains, Absent)
    (table,) = report.domains
    assert [row[0] for row in table.rows] == list(DOMAINS)
    assert isinstance(report.on_trace, TraceScore)
    assert report.on_trace.rows[0][0] == "this plan"
    assert report.absent == {}
    domain = {"plan_us": 90.0, "mix_us": 95.0, "frequency_us": 100.0, "own_us": 80.0, "regret": 0.125}
    robust = {
        "criterion": "regret",
        "worst": "law",
        "value": 1.125,
        "bound": 1.1,
        "gap": 0.02,
        "weights": {"law": 1.0},
        "domains": {"law": domain},
    }
    tables = domain_tables(placement({3: [0]}, layers=[3], experts=2, robust=robust), None)
    assert not isinstance(tables, Absent)
    assert tables[0].rows == (("law (worst)", "90.00 µs", "95.00 µs", "100.0 µs", "80.00 µs", "+12.5%"),)


def test_what_ifs_and_moving_hot_sets_are_shown_as_the_placement_states_them(
    job_reported: ReportedJob,
) -> None:
    document, report = job_reported.document, make_report(job_reported.placement)
    assert document.what_if is not None
    assert isinstance(report.what_if, WhatIfTable)
    fitting = [row.text for row in document.what_if if row.fits]
    assert [row[0].removesuffix(" *") for row in report.what_if.rows] == ["this plan", *fitting]
    assert {len(row) for row in report.what_if.rows} == {len(report.what_if.headers)}
    assert document.dynamic is not None
    assert isinstance(report.moving, MovingSets)
    assert report.moving.verdict == document.dynamic.verdict
    share = f"{document.dynamic.hit_share['plan']:.1%}"
    assert report.moving.rows[0][:2] == ("this plan", share)
    assert len(report.moving.rows) == len(document.dynamic.step_us)
    bare = document.model_copy(update={"what_if": None, "dynamic": None})
    assert isinstance(what_if_table(bare), Absent)
    assert isinstance(moving_sets(bare), Absent)


def test_the_verdict_is_the_one_on_the_terminal_and_the_frontier_holds_the_plan(
    job_reported: ReportedJob,
) -> None:
    report = make_report(job_reported.placement)
    assert report.verdict[0].startswith(f"{NAME}: {job_reported.document.hot_total}")
    assert report.verdict[1] == job_reported.document.heldout.verdict
    assert isinstance(report.frontier, Frontier)
    assert [point.kv_tokens for point in report.frontier.chosen] == [job_reported.document.kv.tokens]
    assert set(report.absent) == {"cost model", "domains", "score on a trace"}


def test_a_trace_needs_the_model_and_a_profile(job_reported: ReportedJob) -> None:
    with pytest.raises(BadInputError, match="--trace is scored") as caught:
        make_report(job_reported.placement, trace=job_reported.trace)
    assert caught.value.hint == "add --model and --profile"


def test_a_profile_of_another_model_is_refused_and_another_profile_of_it_noted(
    job_reported: ReportedJob,
) -> None:
    other = profile(dataclasses.replace(SHAPE, experts=16))
    with pytest.raises(BadInputError, match="16 experts"):
        make_report(job_reported.placement, profile=other)
    assert not any(
        "profile of" in note
        for note in make_report(job_reported.placement, profile=job_reported.profile).notes
    )
    report = make_report(job_reported.placement, profile=profile(cpu="another CPU"))
    assert report.notes[-1].startswith("warning: times are of a profile of another CPU and ")


def test_the_placement_of_other_tools_may_hold_a_baseline_without_tokens(tmp_path: Path) -> None:
    document = placement_dict(
        {3: [0]},
        layers=[3],
        experts=2,
        baselines={"uniform": {**figures(), "output_tokens_per_s": 0.0}},
    )
    path = tmp_path / "placement.json"
    write_placement(placement({}, layers=[3], experts=2).model_validate(document), path)
    report = make_report(path)
    assert not isinstance(report.placements, Absent)
    assert report.placements[1].throughput_gain == "unknown"


def test_a_number_that_no_figure_can_be_is_named(tmp_path: Path) -> None:
    document = placement({3: [0]}, layers=[3], experts=2)
    faster = document.predicted.model_copy(update={"output_tokens_per_s": 1e300})
    write_placement(document.model_copy(update={"predicted": faster}), tmp_path / "placement.json")
    with pytest.raises(BadInputError, match=r"predicted\.output_tokens_per_s is 1e\+300"):
        make_report(tmp_path / "placement.json")


def test_a_call_of_unknown_use_and_a_profile_that_names_a_path_as_its_side(job_reported: ReportedJob) -> None:
    """Neither hides a point, nor names a file outside the folder of the pictures."""
    made = job_reported.profile
    points = tuple(dataclasses.replace(point, use="later") for point in made.cpu.points)
    odd = dataclasses.replace(made, cpu=dataclasses.replace(made.cpu, side="../elsewhere", points=points))
    scatters = cost_scatters(odd)
    assert not isinstance(scatters, Absent)
    (scatter,) = scatters
    assert scatter.side == "cpu"
    assert [(calls.use, len(calls.text)) for calls in scatter.calls] == [("", len(points))]


def test_under_the_objective_latency_values_are_per_token_of_a_request() -> None:
    solver = placement_dict({3: [0]}, layers=[3], experts=2)["solver"]
    document = placement({3: [0]}, layers=[3], experts=2, solver={**solver, "objective_name": "latency"})
    assert heat_map(document).per_token == "per output token of a request"
    assert "objective, µs per output token of a request" in {row.what for row in origins(document, None)}
