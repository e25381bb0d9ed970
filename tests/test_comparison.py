"""Ways of running a model beside each other: orders that must hold, who wins, and the document."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profiles import profile
from small_traces import token_trace
from test_model import QWEN3_CODER_480B
from tiny_model import line, tiny_cost, tiny_model

from placer.band import Band
from placer.cpu_datasheet import cpu_datasheet
from placer.datasheet import gpu_datasheet
from placer.errors import BadInputError
from placer.host import HostRoom
from placer.kernels.expert_shape import ExpertShape
from placer.model.spec import ModelSpec, read_model
from placer.modes.comparison import Comparison, best_of, compare
from placer.modes.document import comparison_document
from placer.modes.hardware import ComparedHardware, datasheet_hardware, profiled_hardware
from placer.modes.memory import ModeMemory
from placer.modes.mode import Cache, Mode, ModeRow, Way, falls_behind
from placer.modes.request import CompareRequest
from placer.modes.verdict import advice, verdict
from placer.parallelism import Parallelism
from placer.workload import Workload

GIB = 2**30
WORKLOAD = Workload(64, 32, 4)
WIDE = ExpertShape(hidden_size=256, expert_intermediate_size=512, experts=8, top_k=2)
RESERVED = int(3.1 * GIB) + 64 * 2**20
"""What the ledger of one GPU sets aside, and a little for the tiny model's weights and KV."""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    """The tiny model with experts and heads that four GPUs can cut."""
    folder = tmp_path_factory.mktemp("wide")
    return tiny_model(folder, moe_intermediate_size=512, num_key_value_heads=4)


@pytest.fixture(scope="module")
def hardware(wide: ModelSpec) -> ComparedHardware:
    return profiled_hardware(wide, profile(WIDE), None)


def asked(gpus: tuple[int, ...] = (1,), budget_bytes: int = 8 * GIB, **changes: Any) -> CompareRequest:
    return CompareRequest(
        **{
            "workload": WORKLOAD,
            "gpus": gpus,
            "budget_bytes": budget_bytes,
            "device_bytes": budget_bytes,
            **changes,
        }
    )


def row_of(comparison: Comparison, mode: Mode, cache: Cache | None = None, gpus: int = 1) -> ModeRow:
    return next(
        row
        for row in comparison.rows
        if (row.way.mode, row.way.cache, row.way.parallel.gpus) == (mode, cache, gpus)
    )


def tokens_per_s(row: ModeRow) -> float:
    assert row.figures is not None
    return row.figures.bands.output_tokens_per_s.mid


@pytest.fixture(scope="module")
def roomy(wide: ModelSpec, hardware: ComparedHardware) -> Comparison:
    """Everything fits everywhere."""
    return compare(wide, hardware, None, asked((1, 2, 4)))


def test_every_number_of_gpus_has_every_mode(roomy: Comparison) -> None:
    found = [(row.way.parallel.gpus, row.way.mode.value, row.way.spread) for row in roomy.rows]
    assert found[:4] == [
        (1, "gpu-only", "tp1"), (1, "streamed", "tp1"), (1, "streamed", "tp1"), (1, "hot-cold", "tp1"),
    ]  # fmt: skip
    assert [spread for gpus, mode, spread in found if (gpus, mode) == (4, "gpu-only")] == [
        "tp4",
        "tp4+ep2",
        "tp4+ep4",
    ]


def test_a_cache_of_all_experts_serves_like_gpus_alone(roomy: Comparison) -> None:
    cached, alone = row_of(roomy, Mode.STREAMED, Cache.LRU), row_of(roomy, Mode.GPU_ONLY)
    assert cached.hot_experts == alone.hot_experts == 4 * 8
    assert cached.figures == alone.figures
    # It is gpu-only with pinned host memory beside it: no tie, and the row says why.
    assert cached.unstreamed == "every expert has a slot: nothing is streamed"
    assert roomy.keeps_targets(cached)
    assert not any(row.unstreamed for row in roomy.tied)
    rows = comparison_document(roomy)["rows"]
    assert {(row["cache"], row["unstreamed_reason"] is None) for row in rows} == {
        (None, True), ("none", True), ("lru", False),
    }  # fmt: skip


def test_no_cache_is_never_faster_than_one(roomy: Comparison) -> None:
    for gpus in (1, 2, 4):
        bare, cached = (row_of(roomy, Mode.STREAMED, cache, gpus) for cache in (Cache.NONE, Cache.LRU))
        assert tokens_per_s(bare) <= tokens_per_s(cached)


def test_all_hot_is_gpus_alone_but_for_the_cold_path_of_every_layer(wide: ModelSpec) -> None:
    made = profile(WIDE)
    # A CPU on which no expert is worth its time: 5 µs per call, a millisecond per expert.
    slow = replace(made, cpu=replace(made.cpu, cost=tiny_cost(cold=line(5.0, 1000.0, 10.0)).cold))
    comparison = compare(wide, profiled_hardware(wide, slow, None), None, asked())
    split, alone = row_of(comparison, Mode.HOT_COLD), row_of(comparison, Mode.GPU_ONLY)
    assert split.hot_experts == 32
    assert split.figures is not None
    assert alone.figures is not None
    slower_ms = split.figures.mid.tpot_ms.p50 - alone.figures.mid.tpot_ms.p50
    # The CPU is called and copies are made in each of four layers: 5 + 30 + 0.1 µs per token, and no more.
    assert 0 <= slower_ms <= 4 * (5 + 30 + 0.1 * 4) / 1e3 * 1.01


def test_a_band_surrounds_its_middle(roomy: Comparison) -> None:
    for row in roomy.rows:
        assert row.figures is not None
        rate = row.figures.bands.output_tokens_per_s
        assert rate.low < rate.mid < rate.high


@pytest.mark.parametrize(
    ("mode", "cache"), [(Mode.GPU_ONLY, None), (Mode.STREAMED, Cache.LRU), (Mode.HOT_COLD, None)]
)
def test_more_gpus_never_hold_less(tmp_path: Path, mode: Mode, cache: Cache | None) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_CODER_480B))
    model, usable = read_model(tmp_path), gpu_datasheet("h200").usable_bytes
    held = [
        ModeMemory(model, Way(mode, Parallelism(gpus), cache), asked(budget_bytes=usable)).most_kv_tokens()
        for gpus in (1, 2, 4)
    ]
    assert held == sorted(held)
    # Four times 109 GiB of experts fit four GPUs and not two; the other modes run on one.
    assert [count > 0 for count in held] == [mode is not Mode.GPU_ONLY, mode is not Mode.GPU_ONLY, True]


def test_the_most_kv_tokens_fit_and_one_more_does_not(wide: ModelSpec) -> None:
    request = asked(budget_bytes=RESERVED + GIB)
    memory = ModeMemory(wide, Way(Mode.GPU_ONLY, Parallelism(1)), request)
    most = memory.most_kv_tokens()
    assert replace(memory.least, min_kv_tokens=most).fits
    assert not replace(memory.least, min_kv_tokens=most + 1).fits


def test_what_does_not_fit_names_its_line_and_what_would(wide: ModelSpec, hardware: ComparedHardware) -> None:
    # 1.5 million tokens of 4,096 bytes are 5.7 GiB; half of that fits, in FP8 or on two GPUs.
    comparison = compare(wide, hardware, None, asked(budget_bytes=RESERVED + 4 * GIB, kv_tokens=1_500_000))
    row = row_of(comparison, Mode.GPU_ONLY)
    assert row.obstacle is not None
    assert row.obstacle.line == "kv_pool"
    assert any(cure.startswith("--kv-tokens of at most") for cure in row.obstacle.cures)
    assert "--kv-dtype fp8" in row.obstacle.cures
    assert any(cure.startswith("--gpus ") for cure in row.obstacle.cures)
    assert comparison.best is None


def test_host_memory_stops_the_modes_that_need_it(wide: ModelSpec, hardware: ComparedHardware) -> None:
    comparison = compare(wide, hardware, None, asked(host_memory_bytes=2**20))
    assert row_of(comparison, Mode.GPU_ONLY).fits
    for mode, cache in ((Mode.STREAMED, Cache.NONE), (Mode.STREAMED, Cache.LRU), (Mode.HOT_COLD, None)):
        obstacle = row_of(comparison, mode, cache).obstacle
        assert obstacle is not None
        assert obstacle.line in ("host experts", "host scratch")


def test_host_memory_chooses_the_chunks_that_it_holds(wide: ModelSpec, hardware: ComparedHardware) -> None:
    workload = replace(WORKLOAD, prompt_tokens=1024)
    free = compare(wide, hardware, None, asked(workload=workload))
    method, nodes = hardware.profile.cpu.method, hardware.profile.cpu.numa_nodes

    def needed_bytes(chunk_tokens: int) -> int:
        return HostRoom(method, nodes, None).ledger(wide, chunk_tokens).total_bytes

    settings = row_of(free, Mode.HOT_COLD).settings
    assert settings is not None
    assert settings.chunk_tokens == 1024
    tight = compare(wide, hardware, None, asked(workload=workload, host_memory_bytes=needed_bytes(512)))
    row = row_of(tight, Mode.HOT_COLD)
    assert row.settings is not None
    assert row.host is not None
    assert row.settings.chunk_tokens == 512
    assert sum(row.host.values()) == needed_bytes(512)
    # A byte less holds no chunk, and what is asked for then is enough.
    short = compare(wide, hardware, None, asked(workload=workload, host_memory_bytes=needed_bytes(512) - 1))
    obstacle = row_of(short, Mode.HOT_COLD).obstacle
    assert obstacle is not None
    (cure,) = obstacle.cures
    enough = float(cure.removeprefix("a server with ").removesuffix(" GiB of memory"))
    assert needed_bytes(512) <= enough * GIB < needed_bytes(512) + 0.01 * GIB


def test_the_least_memory_that_would_do_is_advised(wide: ModelSpec, hardware: ComparedHardware) -> None:
    found = compare(wide, hardware, None, asked(host_memory_bytes=2**20))
    short = replace(found, rows=tuple(row for row in found.rows if not row.fits))
    assert len(short.rows) == 3
    least = min(short.rows, key=lambda row: sum((row.host or {}).values()))
    assert least.obstacle is not None
    assert str(advice(short)).startswith(least.obstacle.cures[0])


def test_most_tokens_win_without_targets_and_ties_go_to_the_simplest(roomy: Comparison) -> None:
    best = roomy.best
    assert best is not None
    most = max(tokens_per_s(row) for row in roomy.rows if row.runs)
    assert tokens_per_s(best) >= 0.97 * most
    near = [
        row for row in roomy.rows if row.runs and row.unstreamed is None and tokens_per_s(row) >= 0.97 * most
    ]
    assert set(map(id, near)) == set(map(id, (best, *roomy.tied)))
    assert best.way.parallel.gpus == min(row.way.parallel.gpus for row in near)


def rated(row: ModeRow, rate: float) -> ModeRow:
    assert row.figures is not None
    mid = replace(row.figures.mid, output_tokens_per_s=rate)
    return replace(row, figures=replace(row.figures, mid=mid))


def test_what_is_within_three_percent_is_a_tie(roomy: Comparison) -> None:
    one, four = row_of(roomy, Mode.GPU_ONLY, gpus=1), row_of(roomy, Mode.GPU_ONLY, gpus=4)
    split = row_of(roomy, Mode.HOT_COLD)
    near = replace(roomy, rows=(rated(four, 100.0), rated(split, 99.0), rated(one, 97.0)))
    assert (near.best, near.tied) == (near.rows[2], (near.rows[1], near.rows[0]))
    tie = (
        "tied within 3% with hot-cold on 1 GPU (tp1), gpu-only on 4 GPUs (tp4); this is the simplest of them"
    )
    assert tie in verdict(near)
    apart = replace(roomy, rows=(rated(four, 100.0), rated(one, 96.9)))
    assert (apart.best, apart.tied) == (apart.rows[0], ())


def test_what_no_runtime_runs_never_wins(roomy: Comparison) -> None:
    for gpus in (1, 2, 4):
        cached = row_of(roomy, Mode.STREAMED, Cache.LRU, gpus)
        assert cached.runs == (gpus == 1)
        assert roomy.keeps_targets(cached) == cached.runs
    rows = comparison_document(roomy)["rows"]
    assert {row["runs"] for row in rows} == {True, False}
    for row in rows:
        assert row["runs"] == (row["runs_reason"] is None)
        if row["cache"] == "lru" and row["gpus"] > 1:
            assert "one GPU only" in row["runs_reason"]
        # torch's kernel is the plugin's alone, which runs on one GPU.
        if row["mode"] == "hot-cold":
            assert row["runs"] == (row["gpus"] == 1)
    only = replace(roomy, rows=(rated(row_of(roomy, Mode.STREAMED, Cache.LRU, 2), 9.0),))
    assert only.best is None
    assert verdict(only).startswith("nothing that fits on 1, 2, 4 GPUs runs: SGLang's paged experts")


def test_targets_choose_fewer_running_requests(wide: ModelSpec, hardware: ComparedHardware) -> None:
    free = compare(wide, hardware, None, asked())
    cold = row_of(free, Mode.STREAMED, Cache.NONE)
    assert cold.settings is not None
    assert cold.figures is not None
    assert cold.settings.max_running_requests == 4
    target = 0.9 * cold.figures.mid.tpot_ms.p95
    kept = compare(wide, hardware, None, asked(workload=replace(WORKLOAD, slo_tpot_ms=target)))
    row = row_of(kept, Mode.STREAMED, Cache.NONE)
    assert row.settings is not None
    assert row.figures is not None
    assert row.settings.max_running_requests < 4
    assert row.figures.mid.tpot_ms.p95 <= target


def test_targets_that_nothing_keeps_say_by_how_much(wide: ModelSpec, hardware: ComparedHardware) -> None:
    workload = replace(WORKLOAD, slo_tpot_ms=0.001)
    document = comparison_document(compare(wide, hardware, None, asked(workload=workload)))
    assert document["best"] is None
    assert document["verdict"].startswith("no way keeps the targets: the closest is ")
    assert "where 1.000 µs is asked (" in document["verdict"]
    assert "at 1 running request and chunks of" in document["verdict"]
    assert "every row misses the TPOT target" in document["verdict"]
    assert not any(row["meets_targets"] for row in document["rows"])
    (missed,) = document["missed"]
    nearest = document["rows"][missed["row"]]
    assert (missed["target"], missed["asked_ms"]) == ("tpot_ms", 0.001)
    assert missed["reached_ms"] == nearest["tpot_ms"]["p95"]
    assert missed["factor"] == pytest.approx(missed["reached_ms"] / 0.001)
    assert missed["reached_ms"] == min(row["tpot_ms"]["p95"] for row in document["rows"] if row["runs"])


def test_a_search_for_other_traffic_that_time_ends_says_so(
    wide: ModelSpec, hardware: ComparedHardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed = asked(workload=replace(WORKLOAD, slo_tpot_ms=0.001))
    said = "looked for during 30 s"
    found = compare(wide, hardware, None, missed)
    assert found.others
    assert not any(said in note for note in found.notes)
    monkeypatch.setattr("placer.modes.other_traffic.SECONDS", -1.0)
    found = compare(wide, hardware, None, missed)
    assert found.others == ()
    assert any(said in note for note in comparison_document(found)["notes"])


@pytest.mark.parametrize("asked_ms", [{"slo_tpot_ms": 0.01}, {"slo_tpot_ms": 0.01, "slo_ttft_ms": 0.01}])
def test_missed_targets_say_which_would_be_kept_and_those_are(
    wide: ModelSpec, hardware: ComparedHardware, asked_ms: dict[str, float]
) -> None:
    missed = compare(wide, hardware, None, asked(workload=replace(WORKLOAD, **asked_ms)))
    (relaxed,), document = missed.others, comparison_document(missed)
    words = relaxed.flags.split()
    assert words[::2] == ["--slo-tpot", "--slo-ttft"][: len(asked_ms)]
    assert document["advice"].startswith(f"{relaxed.flags}, tried: ")
    assert re.search(r"at \d+ running requests? and chunks of", document["advice"])
    typed = {field: float(value) for field, value in zip(asked_ms, words[1::2], strict=True)}
    kept = compare(wide, hardware, None, asked(workload=replace(WORKLOAD, **typed)))
    assert kept.best is not None
    assert kept.others == ()
    assert comparison_document(kept)["null_reasons"]["advice"] == "a way wins"


def test_the_least_step_is_tried_where_many_faster_servers_miss(
    wide: ModelSpec, hardware: ComparedHardware
) -> None:
    # A target that a single request just keeps: with 64 clients many servers with more seem to keep it, and miss.
    crowd = replace(WORKLOAD, concurrency=64)
    alone = compare(wide, hardware, None, asked(workload=replace(crowd, slo_tpot_ms=0.001)))
    row = row_of(alone, Mode.GPU_ONLY)
    assert row.figures is not None
    least_ms = row.figures.mid.tpot_ms.p95
    kept = compare(wide, hardware, None, asked(workload=replace(crowd, slo_tpot_ms=1.001 * least_ms)))
    assert kept.keeps_targets(row_of(kept, Mode.GPU_ONLY))


def test_a_trace_judges_every_way_on_requests_that_were_not_solved_on(
    wide: ModelSpec, hardware: ComparedHardware
) -> None:
    # Every token of every request needs experts 6 and 7: two slots per layer never miss once they hold them.
    trace = token_trace([[[6, 7]] * 4] * 400, experts=8, request=[number // 20 for number in range(400)])
    expert = 3 * 256 * 512 + 3 * 8 * 4
    tight = RESERVED - 64 * 2**20 + 6 * 2**20 + 8 * expert
    traced = compare(wide, hardware, trace, asked(budget_bytes=tight))
    uniform = compare(wide, hardware, None, asked(budget_bytes=tight))
    for mode, cache in ((Mode.STREAMED, Cache.LRU), (Mode.HOT_COLD, None)):
        known, unknown = row_of(traced, mode, cache), row_of(uniform, mode, cache)
        assert 0 < known.hot_experts < 32
        assert known.unstreamed is None
        assert tokens_per_s(known) > tokens_per_s(unknown)


def test_the_document_keeps_the_contract(roomy: Comparison) -> None:
    document = json.loads(json.dumps(comparison_document(roomy), allow_nan=False))
    for row in document["rows"]:
        assert row["mode"] in ("gpu-only", "streamed", "hot-cold")
        assert set(row) >= {
            "gpus", "parallelism", "fits", "binding_line", "hot_experts", "kv_tokens", "provenance",
        }  # fmt: skip
        assert set(row["output_tokens_per_s"]) == {"low", "mid", "high"}
        assert {"p50", "p95"} <= set(row["ttft_ms"]) & set(row["tpot_ms"])
        ledger = row["hbm"]["ledger"]
        assert sum(ledger.values()) == row["hbm"]["budget_bytes_per_gpu"]
        assert row["host"]["total_bytes"] == sum(row["host"]["ledger"].values())
        assert row["output_tokens_per_s_per_gpu"] * row["gpus"] == pytest.approx(
            row["output_tokens_per_s"]["mid"]
        )
        assert (row["binding_line"] is None) == ("binding_line" in row["null_reasons"])
        assert set(row["provenance"]) >= {"hot", "cold", "base", "routing", "latencies"}
    assert document["best"] in document["rows"]
    # The rule is for the GPU that is compared alone.
    ((size, rule),) = document["rule_of_thumb"].items()
    assert (size, rule["rule_gpus"]) == ("24 GB", 1)
    assert 0 < rule["exact_weights_bytes"] < rule["exact_bytes"]


@pytest.mark.parametrize(
    ("workload", "budget_bytes", "why"),
    [
        (WORKLOAD, GIB, "nothing fits on so many GPUs"),
        (replace(WORKLOAD, slo_tpot_ms=0.001), 8 * GIB, "no way that runs on so many GPUs keeps the targets"),
    ],
)
def test_where_no_way_wins_on_some_gpus_the_document_says_why(
    wide: ModelSpec, hardware: ComparedHardware, workload: Workload, budget_bytes: int, why: str
) -> None:
    document = comparison_document(
        compare(wide, hardware, None, asked(workload=workload, budget_bytes=budget_bytes))
    )
    assert document["best_by_gpus"] == {"1": None}
    assert document["null_reasons"]["best_by_gpus.1"] == why


def test_another_gpu_replaces_the_profiles(wide: ModelSpec) -> None:
    other = profiled_hardware(wide, profile(WIDE), "h100-sxm")
    assert other.at(Parallelism(1)).gpu.name == "h100-sxm"
    assert other.usable_bytes > 79 * GIB


def test_measured_times_hold_at_the_profiled_size_and_the_datasheet_elsewhere(wide: ModelSpec) -> None:
    own = profiled_hardware(wide, profile(WIDE), None)
    assert own.at(Parallelism(1)) is own.profile
    assert own.at(Parallelism(2)).gpu.hot != own.profile.gpu.hot
    assert own.at(Parallelism(2)).cpu is own.profile.cpu


@pytest.mark.parametrize("gpus", [(), (0,), (65,)])
def test_numbers_of_gpus_are_checked(gpus: tuple[int, ...]) -> None:
    with pytest.raises(BadInputError, match="--gpus is"):
        asked(gpus)


def test_a_request_longer_than_the_context_is_refused(wide: ModelSpec, hardware: ComparedHardware) -> None:
    with pytest.raises(BadInputError, match=r"exceeds the model's context of 4,096"):
        compare(wide, hardware, None, asked(workload=Workload(4096, 32, 1)))


def test_fetches_are_no_faster_than_host_memory(wide: ModelSpec) -> None:
    # Eight channels of DDR5-4800 in one socket: 307.2 GB/s, three quarters of it shared by all GPUs.
    own = datasheet_hardware(wide, cpu_datasheet("xeon-8480+"), "h100-sxm", "torch")
    link, memory = 0.75 * 63e9, 0.75 * 307.2e9
    assert own.fetch_bytes_per_s(1) == pytest.approx(link)
    assert own.fetch_bytes_per_s(8) == pytest.approx(memory / 8)


def test_varying_lengths_find_room_in_the_memory_that_gpus_alone_leave(
    wide: ModelSpec, hardware: ComparedHardware
) -> None:
    workload = replace(WORKLOAD, length_variation=1.0)
    row = row_of(compare(wide, hardware, None, asked(workload=workload)), Mode.GPU_ONLY)
    assert row.settings is not None
    assert row.settings.kv_tokens == 4 * workload.longest_request_tokens


@pytest.fixture(scope="module")
def overrun(wide: ModelSpec, hardware: ComparedHardware) -> Comparison:
    """Four times the requests that anything serves."""
    return compare(wide, hardware, None, asked(workload=replace(WORKLOAD, rate_per_s=1e3)))


def test_requests_that_arrive_too_fast_leave_nulls_with_a_reason(overrun: Comparison) -> None:
    document = comparison_document(overrun)
    assert document["verdict"].startswith("every way falls behind the requests that arrive")
    # Without targets the fastest is the answer all the same, as it is a solve's.
    assert document["best"]["output_tokens_per_s"]["mid"] >= 0.97 * max(
        tokens_per_s(row) for row in overrun.rows if row.runs
    )
    assert not any(row["meets_targets"] for row in document["rows"])
    row = document["rows"][0]
    assert row["ttft_ms"]["p95"] is None
    assert "the wait grows" in row["null_reasons"]["ttft_ms.p95"]
    assert row["tpot_ms"]["p95"] > 0


def test_a_rate_just_beyond_what_is_served_says_which_is_kept_up_with(
    wide: ModelSpec, hardware: ComparedHardware, overrun: Comparison
) -> None:
    assert overrun.best is not None
    assert overrun.best.figures is not None
    served_per_s = overrun.best.figures.mid.requests_per_s
    near = replace(WORKLOAD, rate_per_s=0.99 * served_per_s)
    behind = compare(wide, hardware, None, asked(workload=near))
    said = re.search(r"keeps up with at most (\S+) per second", verdict(behind))
    assert said is not None
    assert 0.96 * served_per_s < float(said[1]) < 0.97 * served_per_s
    # What is advised is kept up with.
    advised = behind.others
    assert advised
    for other in advised:
        again = compare(wide, hardware, None, asked(workload=other.workload))
        assert again.keeping_up
        assert other.flags in str(advice(behind))
    assert any(f"--rate {said[1]}" == other.flags for other in advised)


def test_more_requests_at_a_time_are_tried_where_all_fall_behind(
    wide: ModelSpec, hardware: ComparedHardware, overrun: Comparison
) -> None:
    assert overrun.best is not None
    assert overrun.best.figures is not None
    # A tenth more than four at a time serve is little for eight.
    rate = 1.1 * overrun.best.figures.mid.requests_per_s
    behind = compare(wide, hardware, None, asked(workload=replace(WORKLOAD, rate_per_s=rate)))
    other = behind.others[0]
    assert other.flags == "--concurrency 8"
    assert other.workload == replace(WORKLOAD, rate_per_s=rate, concurrency=8)
    kept = compare(wide, hardware, None, asked(workload=other.workload))
    assert kept.best is not None
    assert not falls_behind(kept.best)


def test_fewer_clients_are_advised_where_they_keep_the_targets(
    wide: ModelSpec, hardware: ComparedHardware
) -> None:
    # Both targets at once: with four clients some wait, or all take longer steps.
    one = row_of(
        compare(wide, hardware, None, asked(workload=replace(WORKLOAD, concurrency=2))), Mode.GPU_ONLY
    )
    assert one.figures is not None
    targets = {
        "slo_tpot_ms": 1.001 * one.figures.mid.tpot_ms.p95,
        "slo_ttft_ms": 1.001 * one.figures.mid.ttft_ms.p95,
    }
    missed = compare(wide, hardware, None, asked(workload=replace(WORKLOAD, concurrency=16, **targets)))
    assert missed.best is None
    fewer = missed.others[-1]
    assert fewer.flags == f"--concurrency {fewer.workload.concurrency}"
    assert 2 <= fewer.workload.concurrency < 16
    kept = compare(wide, hardware, None, asked(workload=fewer.workload))
    assert kept.best is not None


def test_a_part_of_every_gpu_is_what_the_sizing_rule_divides_by(
    wide: ModelSpec, hardware: ComparedHardware
) -> None:
    whole = compare(wide, hardware, None, asked())
    part = compare(wide, hardware, None, asked(budget_bytes=4 * GIB, device_bytes=8 * GIB))
    assert list(whole.rules) == [f"{hardware.gpu.memory_gb} GB"]
    (rule,) = part.rules.values()
    assert list(part.rules) == ["4.00 GiB"]
    assert rule.gpu_bytes == 4 * GIB


def test_what_arrives_is_what_is_served_where_the_server_keeps_up(
    wide: ModelSpec, hardware: ComparedHardware
) -> None:
    workload = replace(WORKLOAD, rate_per_s=2.0)
    comparison = compare(wide, hardware, None, asked((1, 2), workload=workload))
    # Two requests of 32 tokens per second, whatever serves them: the fewest GPUs win.
    assert comparison.best is not None
    assert tokens_per_s(comparison.best) == pytest.approx(64.0)
    assert comparison.best.way.parallel.gpus == 1
    # Tokens/s are what arrives and rank nothing: on those GPUs the shortest TPOT does.
    ranked = [row for row in comparison.rows if row.way.parallel.gpus == 1 and row.figures is not None]
    shortest = min(row.figures.mid.tpot_ms.p95 for row in ranked if row.figures is not None)
    assert comparison.best.figures is not None
    assert comparison.best.figures.mid.tpot_ms.p95 <= 1.03 * shortest
    assert "every way that runs keeps up with what arrives, so tokens/s do not rank" in verdict(comparison)


def test_at_a_rate_a_plainer_way_of_longer_steps_does_not_tie(roomy: Comparison) -> None:
    one, split = row_of(roomy, Mode.GPU_ONLY), row_of(roomy, Mode.HOT_COLD)
    request = replace(roomy.request, workload=replace(WORKLOAD, rate_per_s=2.0))
    assert best_of([timed(one, 10.0), timed(split, 9.8)], request) == timed(one, 10.0)
    assert best_of([timed(one, 10.0), timed(split, 9.6)], request) == timed(split, 9.6)


def timed(row: ModeRow, tpot_ms: float) -> ModeRow:
    """``row`` with another p95 TPOT, keeping up with what arrives."""
    assert row.figures is not None
    mid = replace(row.figures.mid, tpot_ms=replace(row.figures.mid.tpot_ms, p95=tpot_ms))
    return replace(row, figures=replace(row.figures, mid=mid))


def test_a_model_that_the_cpus_kernel_refuses_is_still_served_by_gpus(wide: ModelSpec) -> None:
    odd = replace(wide, expert_intermediate_size=576)
    own = datasheet_hardware(odd, cpu_datasheet("xeon-8480+"), "h100-sxm", None)
    comparison = compare(odd, own, None, asked())
    assert row_of(comparison, Mode.GPU_ONLY).fits
    obstacle = row_of(comparison, Mode.HOT_COLD).obstacle
    assert obstacle is not None
    assert obstacle.line == "cpu_kernel"
    assert "is not a multiple of 128" in obstacle.reason
    # AMXINT8 takes such sizes, but sglang-kt, which runs it, does not.
    assert obstacle.cures == ("--cpu-method torch",)
    document = comparison_document(comparison)
    assert document["hardware"]["cpu_method"] is None
    assert document["null_reasons"]["hardware.cpu_method"] == obstacle.reason
    refused = next(row for row in document["rows"] if row["mode"] == "hot-cold")
    for field in (
        "hot_experts",
        "kv_tokens",
        "max_running_requests",
        "chunked_prefill_size",
        "requests_per_s",
    ):
        assert refused[field] is None
        assert refused["null_reasons"][field] == obstacle.reason


def test_where_no_runtime_splits_the_experts_no_method_is_offered(wide: ModelSpec) -> None:
    odd = replace(wide, expert_intermediate_size=576)
    own = datasheet_hardware(odd, cpu_datasheet("xeon-8480+"), "h100-sxm", None)
    obstacle = row_of(compare(odd, own, None, asked((2,))), Mode.HOT_COLD, gpus=2).obstacle
    assert obstacle is not None
    assert (obstacle.line, obstacle.cures) == ("cpu_kernel", ())
    assert "no runtime splits the experts of" in obstacle.reason


def test_a_cure_leaves_a_way_that_some_runtime_runs(wide: ModelSpec, hardware: ComparedHardware) -> None:
    # torch's kernel and SGLang's paged experts run on one GPU only: more memory on two helps neither.
    short = compare(wide, hardware, None, asked((1, 2), host_memory_bytes=2**20))
    for mode, cache in ((Mode.STREAMED, Cache.LRU), (Mode.HOT_COLD, None)):
        alone, together = (row_of(short, mode, cache, gpus).obstacle for gpus in (1, 2))
        assert alone is not None
        assert together is not None
        assert alone.cures
        assert together.cures == ()
        assert "and no runtime runs this: " in together.reason


def test_a_checkpoint_in_four_bits_is_sized_timed_and_fetched_as_it_is_stored(tmp_path: Path) -> None:
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    small = tiny_model(tmp_path, moe_intermediate_size=512, num_key_value_heads=4, quantization_config=gptq)
    made = profile(WIDE)
    timed = replace(made, gpu=replace(made.gpu, kernel=made.cpu))
    own = profiled_hardware(small, timed, None)
    rows = {(row.way.mode, row.way.cache): row for row in compare(small, own, None, asked()).rows}
    stored = small.checkpoint_expert_bytes
    alone, split = rows[Mode.GPU_ONLY, None], rows[Mode.HOT_COLD, None]
    assert alone.hbm is not None
    assert alone.hbm.lines["hot_experts"] == pytest.approx(32 * stored, rel=0.001)
    assert rows[Mode.STREAMED, Cache.LRU].host["experts"] == pytest.approx(32 * stored, rel=0.001)
    # The kernel that was timed computes block FP8, which hot experts beside cold ones are in.
    assert "datasheet roofline" in alone.provenance["hot"]
    assert "gptq4_g128" in alone.provenance["hot"]
    assert "not the profile's kernel, which was timed on fp8_block at tp 1" in alone.provenance["hot"]
    assert "kernels measured" in split.provenance["hot"]
    assert "has to be converted" in split.provenance["hot"]


def slow_end(row: ModeRow, **highs: float) -> ModeRow:
    """``row`` with other slow ends of its bands."""
    assert row.figures is not None
    bands = row.figures.bands
    changed = {field: replace_high(getattr(bands, field), high) for field, high in highs.items()}
    return replace(row, figures=replace(row.figures, bands=replace(bands, **changed)))


def replace_high(band: Band, high: float) -> Band:
    return band._replace(high=high)


def test_a_winner_that_its_slow_end_makes_late_is_not_sure(roomy: Comparison) -> None:
    one, split = row_of(roomy, Mode.GPU_ONLY), row_of(roomy, Mode.HOT_COLD)
    request = replace(roomy.request, workload=replace(WORKLOAD, slo_tpot_ms=1e3))
    slow, endless = slow_end(one, tpot_ms_p95=2e3), slow_end(one, ttft_ms_p95=float("inf"))
    for row, what in ((slow, "misses a target"), (endless, "falls behind the requests that arrive")):
        alone = replace(roomy, request=request, rows=(row,))
        assert alone.best is row
        assert not alone.keeps_targets_slow(row)
        assert f"not sure: at the slow end of its band it {what}; no row does better" in verdict(alone)
        beside = replace(alone, rows=(row, rated(split, 1.0)))
        assert "; hot-cold on 1 GPU (tp1) does not" in verdict(beside)
    sure = replace(roomy, request=request, rows=(one,))
    assert sure.keeps_targets_slow(one)
    assert "not sure" not in verdict(sure)


def test_of_equals_the_plainest_wins(roomy: Comparison) -> None:
    alone, cached = row_of(roomy, Mode.GPU_ONLY), row_of(roomy, Mode.STREAMED, Cache.LRU)
    assert best_of([cached, alone], roomy.request) == alone
