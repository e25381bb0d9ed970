"""What `placer compare` prints in terminals of any width: numbers whole, columns left out by name."""

import io
from typing import Any

import pytest
from rich.console import Console

from placer.answer.comparison import comparison_answer

HEADERS = ("per GPU", "TTFT p50", "TPOT p50", "KV most", "at once", "host GiB", "(low-high)")


def row(**changes: Any) -> dict[str, Any]:
    """A row of eight large GPUs."""
    latency = {"p50": 10_787.0, "p95": 10_789.0, "p95_low": 1.0, "p95_high": 20_000.0}
    return {
        "mode": "gpu-only", "cache": None, "gpus": 8, "parallelism": "tp8+ep8", "fits": True, "runs": True,
        "runs_reason": None, "unstreamed_reason": None,
        "output_tokens_per_s": {"low": 11_339.0, "mid": 17_009.0, "high": 21_261.0},
        "output_tokens_per_s_per_gpu": 2_126.0, "ttft_ms": latency, "tpot_ms": latency,
        "hbm": {"ledger": {"hot_experts": 130 * 2**30, "unused": 2**30}},
        "host": {"ledger": {"experts": 1_744 * 2**30}, "total_bytes": 1_744 * 2**30},
        "max_kv_tokens": 24_500_000, "max_running_requests": 16, "provenance": {"hot": "datasheet roofline"}, **changes,
    }  # fmt: skip


DOCUMENT = {
    "model": "large", "verdict": "best: gpu-only on 8 GPUs (tp8+ep8)", "advice": None, "notes": [], "rule_of_thumb": {},
    "workload": {
        "prompt_tokens": 1024, "output_tokens": 512, "concurrency": 64, "rate_per_s": None, "arrivals": None,
        "arrivals_span_s": None, "kv_dtype": "bf16", "slo": {"tpot_ms": None, "ttft_ms": None},
    },
    "hardware": {"gpu": "h200", "budget_bytes_per_gpu": 139 * 2**30, "cpu": "xeon-8480+x2", "cpu_method": None},
    "rows": [
        row(),
        row(mode="streamed", cache="lru", runs=False, runs_reason="SGLang's paged experts run on one GPU only"),
    ],
    "best_by_gpus": {"8": 0},
}  # fmt: skip


def printed(width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, markup=False, emoji=False)
    console.print(comparison_answer(DOCUMENT), highlight=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "left_out"), [(120, 0), (100, 2), (80, 5), (60, 7)])
def test_narrow_terminals_leave_out_columns_rather_than_cut_numbers(width: int, left_out: int) -> None:
    lines = printed(width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    said = " ".join(line.strip() for line in lines)
    (best,) = [line for line in lines if line.startswith("*    8")]
    assert best.split()[1:5] == ["8", "gpu-only", "tp8+ep8", "17,009"]
    # No answer is wider than 100 columns: what 100 leave out no terminal shows.
    never, hidden = HEADERS[: min(2, left_out)], HEADERS[2:left_out]
    assert ("a wider terminal also shows: " + ", ".join(hidden) in said) == bool(hidden)
    assert ("columns that only --json has: " + ", ".join(never) + " * wins" in said) == bool(never)
    assert ("also shows" in said or "only --json" in said) == bool(left_out)


def test_a_row_that_no_runtime_runs_is_marked_and_its_reason_given() -> None:
    lines = printed(100)
    assert any(line.startswith("-    8 streamed lru tp8+ep8") for line in lines)
    assert "- runs nowhere: SGLang's paged experts run on one GPU only" in lines


def answered(*rows: dict[str, Any]) -> list[str]:
    console = Console(file=io.StringIO(), width=200, markup=False, emoji=False)
    console.print(comparison_answer({**DOCUMENT, "rows": list(rows)}), highlight=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_row_that_streams_nothing_is_marked_and_says_so() -> None:
    lines = answered(row(), row(mode="streamed", cache="lru", unstreamed_reason="every expert has a slot"))
    assert any(line.startswith("=    8 streamed lru tp8+ep8") for line in lines)
    assert "= every expert has a slot" in lines


def test_rounding_of_more_than_a_twentieth_of_host_memory_is_said() -> None:
    gib = 2**30
    much = {"ledger": {"experts": 436 * gib, "pinned_rounding": 308 * gib}, "total_bytes": 744 * gib}
    little = {"ledger": {"experts": 96 * gib, "pinned_rounding": 4 * gib}, "total_bytes": 100 * gib}
    lines = answered(*(row(mode="streamed", cache="none", host=host) for host in (much, little)))
    assert [line for line in lines if "rounding" in line] == [
        "308.00 GiB of the 744.00 GiB of host memory of streamed bare tp8+ep8 is rounding: torch pins whole powers of "
        "two of bytes"
    ]


def test_latencies_have_their_units_and_three_digits() -> None:
    latency = {"p50": 0.51, "p95": 1.02, "p95_low": 1.0, "p95_high": 2.0}
    (line,) = [line for line in answered(row(ttft_ms=latency)) if line.startswith("*    8")]
    assert " 10.8 s 10.8 s 510 µs 1.02 ms " in line


def test_origins_are_said_once_and_with_their_modes_where_they_differ() -> None:
    rows = [row(), row(mode="streamed", cache="none", provenance={"hot": "measured"}), row()]
    document = {**DOCUMENT, "rows": rows}
    console = Console(file=io.StringIO(), width=100, markup=False, emoji=False)
    console.print(comparison_answer(document), highlight=False)
    assert isinstance(console.file, io.StringIO)
    lines = [line for line in console.file.getvalue().splitlines() if line.startswith("origin")]
    assert lines == [
        "origin of hot in gpu-only: datasheet roofline",
        "origin of hot in streamed bare: measured",
    ]


def test_of_an_open_loop_the_most_that_run_at_once_are_said() -> None:
    workload = {**DOCUMENT["workload"], "rate_per_s": 2.0, "concurrency": 8}
    console = Console(file=io.StringIO(), width=200, markup=False, emoji=False)
    console.print(comparison_answer({**DOCUMENT, "workload": workload}), highlight=False)
    assert isinstance(console.file, io.StringIO)
    assert "  2 requests per second, at most 8 running at once (--concurrency), " in console.file.getvalue()


RULE = {
    "parameters": 10**11, "bytes_per_parameter": 1.0, "factor": 1.2, "rule_bytes": 120 * 2**30, "rule_gpus": 2,
    "exact_bytes": 100 * 2**30, "exact_weights_bytes": 90 * 2**30, "exact_gpus": 1, "exact_parallelism": "tp1",
    "null_reasons": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "the rule is 20.0% above the ledger and asks for 1 GPU more"),
        (
            {"rule_bytes": 90 * 2**30, "rule_gpus": 1},
            "the rule is 10.0% below the ledger and asks for as many GPUs",
        ),
        (
            {"exact_weights_bytes": 2**30},
            "GPU more; the rule leaves out 99.00 GiB beside the weights: driver, graphs",
        ),
    ],
)
def test_the_sizing_rule_says_which_is_larger_and_what_it_leaves_out(
    changes: dict[str, Any], said: str
) -> None:
    console = Console(file=io.StringIO(), width=400, markup=False, emoji=False)
    console.print(
        comparison_answer({**DOCUMENT, "rule_of_thumb": {"141 GB": {**RULE, **changes}}}), highlight=False
    )
    assert isinstance(console.file, io.StringIO)
    (line,) = [line for line in console.file.getvalue().splitlines() if line.startswith("sizing rule")]
    assert said in line
    assert ("leaves out" in line) == ("exact_weights_bytes" in changes)
