"""The answer of a solve as it is printed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placements import figures, placement, placement_dict
from rich.console import Console, Group, RenderableType

from placer.answer.console import print_answer
from placer.answer.detail import Detail
from placer.answer.ledger import BAR_WIDTH, ledger_parts
from placer.answer.part import chosen_parts
from placer.answer.placement import judged_sentence, placement_answer
from placer.doubt import SLOW_END
from placer.placement import PlacementDocument
from placer.targets import MISSED
from placer.units import GIB


def shown(*parts: RenderableType, width: int = 100) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(*parts, sep="\n")
    return capture.get()


def printed(document: PlacementDocument, width: int = 100) -> str:
    return shown(placement_answer(document, None), width=width)


def test_a_baseline_is_slower_by_tokens_per_second_not_by_its_decode_step() -> None:
    """The plan yields 400 tokens/s; a baseline that decodes faster, but serves 320, is 25 % slower."""
    document = placement(
        {0: [0]},
        layers=[0],
        experts=2,
        baselines={"uniform": {**figures(), "decode_step_ms": 19.0, "output_tokens_per_s": 320.0}},
    )
    row = next(line for line in printed(document).splitlines() if line.startswith("uniform"))
    assert row.split() == ["uniform", "19.00", "ms", "320.0", "25.0%", "+25.0%"]


def test_the_verdict_says_how_fast_how_sure_and_against_what() -> None:
    band = {"low": 300.0, "mid": 400.0, "high": None}
    latency = {"p50": band, "p95": band}
    bands = {"output_tokens_per_s": band, "tpot_ms": latency, "ttft_ms": latency, "rests_on": {}}
    document = placement(
        {0: [0]},
        layers=[0],
        experts=2,
        predicted={**figures(), "provenance": {}, "band": bands},
        baselines={"uniform": {**figures(), "output_tokens_per_s": 320.0}},
    )
    verdict = " ".join(printed(document).split("\n\n")[0].split())
    assert "400.0 tokens/s (300.0 or more), decode step 20.00 ms" in verdict
    assert "(predicted; 1.25x the tokens/s of uniform, the runtime's default)" in verdict


def test_a_loss_beyond_sampling_error_is_said_to_be_one() -> None:
    gains = {
        "frequency": {"mean": -0.012, "low": -0.021, "high": -0.003, "distinct": True},
        "uniform": {"mean": 0.4, "low": 0.3, "high": 0.5, "distinct": True},
    }
    document = placement(
        {0: [0]},
        layers=[0],
        experts=2,
        baselines={"uniform": figures(), "frequency": figures()},
        heldout={"coverage": 0.5, "uniform_null": 0.5, "verdict": "it helps", "requests": 19, "gains": gains},
    )
    text = " ".join(printed(document).split())
    assert "slower than frequency beyond sampling error" in text
    assert "every gain" not in text


def test_the_memory_bar_gives_every_purpose_its_share() -> None:
    """64 columns for 64 GiB: 32 of experts, 8 of KV, 16 of weights, 4 of what the runtime takes, 4 unused."""
    sizes = {
        "hot_experts": 32,
        "attention": 12,
        "router": 4,
        "kv_pool": 8,
        "cuda_graphs": 4,
        "unused": 4,
        "mtp": 0,
    }
    lines = shown(
        *ledger_parts("HBM", {name: size * GIB for name, size in sizes.items()}, 64 * GIB)
    ).splitlines()
    assert lines[0] == "HBM: 64.00 GiB"
    assert lines[1] == f"[{'█' * 32}{'▓' * 16}{'▒' * 8}{'░' * 4}{'·' * 4}]"
    assert lines[2] == "  █ hot experts  ▓ other weights  ▒ KV  ░ runtime  · unused"
    rows = [line.split() for line in lines[4:]]
    assert rows[0] == ["█", "hot_experts", "32.00", "GiB", "50.0%"]
    assert [row[1] for row in rows] == [name for name, size in sizes.items() if size]


LINES = ("hot_experts", "norms", "kv_pool", "cuda_graphs", "unused")


@given(st.dictionaries(st.sampled_from(LINES), st.integers(1), min_size=1))
@settings(deadline=None)
def test_the_memory_bar_keeps_its_width(sizes: dict[str, int]) -> None:
    bar = shown(*ledger_parts("HBM", sizes, sum(sizes.values()))).splitlines()[1]
    assert len(bar) == BAR_WIDTH + 2


def test_the_memory_bar_stays_on_one_line_of_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """58 marks in 60 columns: half of them experts."""
    monkeypatch.setenv("COLUMNS", "60")
    print_answer(Group(*ledger_parts("HBM", {"hot_experts": GIB, "unused": GIB}, 2 * GIB)))
    assert capsys.readouterr().err.splitlines()[1] == f"[{'█' * 29}{'·' * 29}]"


def test_a_flag_that_differs_from_the_kv_tokens_is_explained() -> None:
    same = placement({0: [0]}, layers=[0], experts=2)
    assert "why --max-total-tokens" not in printed(same)
    pools = same.kv.model_copy(update={"tokens": 24_576, "max_total_tokens": 19_729})
    text = " ".join(printed(same.model_copy(update={"kv": pools})).split())
    assert "why --max-total-tokens is 19729: " in text
    assert "layers with a sliding window keep fewer, a pool of 24,576 tokens comes of it" in text


def test_every_answer_of_a_solve_fits_80_columns() -> None:
    names = ("frequency", "frequency_per_layer", "uniform", "front_loading", "random")
    gain = {"mean": 0.495, "low": 0.491, "high": 0.499, "distinct": True}
    document = placement(
        {0: [0]},
        layers=[0],
        experts=2,
        baselines={name: figures() for name in names},
        heldout={
            "coverage": 0.5,
            "uniform_null": 0.5,
            "verdict": "it helps",
            "requests": 19,
            "gains": dict.fromkeys(names, gain),
        },
    )
    lines = printed(document, width=80).splitlines()
    assert [line for line in lines if len(line) > 80 or "…" in line] == []
    assert sum("+49.5% (+49.1% to +49.9%)" in line for line in lines) == 5


def test_one_headline_says_that_a_moving_set_may_beat_a_plan_that_helps() -> None:
    dynamic = {
        "steps": 4,
        "running_requests": 8,
        "slots_per_layer": 1,
        "hit_share": {"plan": 0.5, "lru": 0.9},
        "loads_per_step": 1.0,
        "step_us": {"plan": 10.0, "lru_serial": 4.0},
        "link": None,
        "assumptions": ["loads take what was measured"],
        "verdict": "dynamic wins at 8 running requests",
        "matters": True,
    }
    document = placement({0: [0]}, layers=[0], experts=2, dynamic=dynamic)
    assert judged_sentence(document) == "static placement helps; but dynamic wins at 8 running requests"
    assert printed(document).count("dynamic wins") == 1


def test_the_terminal_says_where_times_are_extrapolated() -> None:
    origin = "fitted here; extrapolated beyond the measured rows per expert in 98% of decode steps"
    predicted = {**figures(), "provenance": {"cold": origin, "hot": "datasheet: h100"}}
    said = " ".join(printed(placement({0: [0]}, layers=[0], experts=2, predicted=predicted)).split())
    assert (
        "cold: fitted here, extrapolated beyond the measured rows per expert in 98% of decode steps; hot:"
        in said
    )


@pytest.mark.parametrize(
    ("status", "said"),
    [("time_limit", "raise --time-limit"), ("searched", "--prove"), ("optimal", None)],
)
def test_an_open_gap_says_what_ended_the_search_and_what_to_do(status: str, said: str | None) -> None:
    solver = {**placement_dict({0: [0]}, layers=[0], experts=2)["solver"], "status": status, "gap": 0.6662}
    solver["bound_us"] = 33.38
    text = " ".join(printed(placement({0: [0]}, layers=[0], experts=2, solver=solver)).split())
    assert ("the gap is above the one asked for" in text) == (said is not None)
    assert said is None or said in text


def test_a_baseline_that_decodes_faster_and_serves_less_is_explained() -> None:
    quick = {**figures(), "decode_step_ms": 19.0, "output_tokens_per_s": 390.0}
    said = " ".join(
        printed(placement({0: [0]}, layers=[0], experts=2, baselines={"frequency": quick})).split()
    )
    assert "tokens/s count them: so frequency decodes faster and serves fewer tokens/s" in said
    same = " ".join(printed(placement({0: [0]}, layers=[0], experts=2)).split())
    assert "uniform is the runtime's default" in same
    assert "serves fewer" not in same


def test_a_missed_target_belongs_to_the_verdict() -> None:
    note = f"{MISSED}--slo-ttft of 6490 ms by 0.5% (6.520 s at p95)"
    answer = placement_answer(placement({0: [0]}, layers=[0], experts=2, notes=["else", note]), None)
    assert shown(answer).count("6490") == 1
    quiet = shown(*chosen_parts(answer, Detail.QUIET), width=200).splitlines()
    assert len(quiet) == 2
    assert quiet[1] == note


def test_what_the_slow_end_does_belongs_to_the_verdict() -> None:
    note = f"{SLOW_END}the plan misses --slo-tpot of 100 ms (127 ms at p95)"
    answer = placement_answer(placement({0: [0]}, layers=[0], experts=2, notes=["else", note]), None)
    assert shown(answer).count("127") == 1
    quiet = shown(*chosen_parts(answer, Detail.QUIET), width=200).splitlines()
    assert quiet[1:] == [note]


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        # All that arrives is served in the middle of the band and at its fast end.
        (300.0, 400.0, "400.0 tokens/s (300.0 to 400.0), decode"),
        (399.98, 400.04, "400.0 tokens/s, decode"),
    ],
)
def test_tokens_per_s_at_a_rate_have_their_range_where_there_is_one(
    low: float, high: float, said: str
) -> None:
    latency = {name: {"low": 1.0, "mid": 2.0, "high": 3.0} for name in ("p50", "p95")}
    rate = {"low": low, "mid": 400.0, "high": high}
    bands = {"output_tokens_per_s": rate, "tpot_ms": latency, "ttft_ms": latency, "rests_on": {}}
    loop = {"arrivals_per_s": 3.0, "capacity_per_s": 4.0, "falls_behind": False}
    predicted = {**figures(), "provenance": {}, "band": bands, "open_loop": loop}
    document = placement({0: [0]}, layers=[0], experts=2, predicted=predicted)
    assert said in " ".join(printed(document, width=200).split())


@pytest.mark.parametrize(
    ("changes", "warned"),
    [
        ({}, True),
        ({"ttft_ms": {"mean": 50_000.0, "p95": 59_000.0}}, False),
        ({"queue_ms": {"mean": 20_000.0, "p95": 29_000.0}}, False),
    ],
)
def test_a_long_wait_that_nothing_bounds_is_warned_of(changes: dict[str, object], warned: bool) -> None:
    latencies = {
        "ttft_ms": {"mean": 60_000.0, "p95": 61_000.0},
        "queue_ms": {"mean": 50_000.0, "p95": 60_000.0},
    }
    predicted = {**figures(), **latencies, **changes, "provenance": {}}
    workload = {"prompt_tokens": 512, "output_tokens": 128, "concurrency": 16}
    document = placement({0: [0]}, layers=[0], experts=2, predicted=predicted, workload=workload)
    said = "warning: at p95 a client waits 60.0 s for a slot, which no target bounds: --slo-ttft does"
    assert (said in " ".join(printed(document).split())) is warned
    # A target bounds it, and eight clients on eight slots do not wait.
    for bounded in ({"slo": {"tpot_ms": None, "ttft_ms": 90_000.0}}, {"concurrency": 8}):
        document = placement(
            {0: [0]}, layers=[0], experts=2, predicted=predicted, workload={**workload, **bounded}
        )
        assert "which no target bounds" not in printed(document)
