"""Results of SGLang's and vLLM's benchmark clients: what is read of them, and what is refused."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmark_results import sglang_result, vllm_result, written
from sglang_kt_source import source

from placer.errors import BadInputError
from placer.profiler.benchmark_file import read_benchmark_file
from placer.profiler.serving.server import Scheduler

SERVER_ARGUMENTS = (
    *(
        "model_path",
        "tp_size",
        "pp_size",
        "dp_size",
        "ep_size",
        "kt_method",
        "kt_cpuinfer",
        "kt_threadpool_count",
    ),
    *(
        "max_running_requests",
        "max_total_tokens",
        "chunked_prefill_size",
        "enable_mixed_chunk",
        "kt_enable_dynamic_expert_update",
    ),
    *("disable_cuda_graph", "kv_cache_dtype", "kt_weight_path", "kt_gpu_experts_ratio", "kt_num_gpu_experts"),
    *("kt_expert_placement_strategy", "kt_max_deferred_experts_per_token", "speculative_algorithm"),
)


@pytest.mark.parametrize("result", [sglang_result, vllm_result])
def test_both_clients_say_the_same_of_one_run(tmp_path: Path, result: Callable[..., dict[str, Any]]) -> None:
    file = read_benchmark_file(written(tmp_path / "bench", result()))
    (run,) = file.runs
    assert len(file.sha256) == 64
    assert (run.clients, run.requests, run.failed, run.detailed) == (2, 4, 0, False)
    assert run.input_tokens == (8, 8, 8, 8)
    assert run.output_tokens == (5, 5, 5, 5)
    assert (run.mean_ttft_ms, run.mean_tpot_ms, run.median_itl_ms) == (30.0, 20.0, 20.0)
    assert run.output_tokens_per_s == 40.0


def test_totals_are_shared_out_where_requests_are_not_told_apart(tmp_path: Path) -> None:
    (run,) = read_benchmark_file(written(tmp_path / "b", vllm_result(total_output_tokens=22))).runs
    assert sorted(run.output_tokens) == [5, 5, 6, 6]


def test_details_leave_out_requests_that_failed(tmp_path: Path) -> None:
    details = {"input_lens": [6, 9, 7, 12, 7], "output_lens": [3, 0, 4, 5, 8]}
    result = sglang_result(**details, errors=["", "timeout", "", "", ""])
    (run,) = read_benchmark_file(written(tmp_path / "b", result)).runs
    assert run.detailed
    assert (run.input_tokens, run.output_tokens, run.failed) == ((6, 7, 12, 7), (3, 4, 5, 8), 1)
    assert run.failed_known


def test_only_sglangs_client_without_details_leaves_failures_uncounted(tmp_path: Path) -> None:
    (sglang,) = read_benchmark_file(written(tmp_path / "a", sglang_result())).runs
    (vllm,) = read_benchmark_file(written(tmp_path / "b", vllm_result())).runs
    assert (sglang.failed_known, vllm.failed_known) == (False, True)


def test_a_client_without_a_limit_sends_all_requests_at_once(tmp_path: Path) -> None:
    (run,) = read_benchmark_file(written(tmp_path / "b", sglang_result(max_concurrency=None))).runs
    assert run.clients == 4


def test_every_line_is_a_run_and_one_object_may_take_many_lines(tmp_path: Path) -> None:
    runs = read_benchmark_file(
        written(tmp_path / "b", sglang_result(), sglang_result(max_concurrency=1))
    ).runs
    assert [run.clients for run in runs] == [2, 1]
    pretty = tmp_path / "pretty"
    pretty.write_text(written(tmp_path / "b", vllm_result()).read_text().replace(", ", ",\n"))
    assert read_benchmark_file(pretty).runs[0].clients == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ('{"endpoint_type": "openai", "dur', "is not valid JSON"),
        ("[1, 2]", "is not a JSON object"),
        ("{}", "written by no client"),
        ('{"schema": "placer.profile/1"}', "written by no client"),
        ("\x00\x01", "is not valid JSON"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(text)
    with pytest.raises(BadInputError, match=said) as caught:
        read_benchmark_file(path)
    assert caught.value.hint


@pytest.mark.parametrize("make", [sglang_result, vllm_result])
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mean_tpot_ms": float("nan")}, "NaN is not a finite number"),
        ({"mean_tpot_ms": float("inf")}, "field mean_tpot_ms"),
        (
            {"mean_tpot_ms": -20.0},
            r"field mean_tpot_ms \(TPOT, .* to the next\) is -20, which is not at least 0",
        ),
        ({"mean_ttft_ms": 0.0}, r"field mean_ttft_ms \(TTFT, .* first token\) is 0, which is not above 0"),
        ({"mean_ttft_ms": None}, "field mean_ttft_ms"),
        ({"output_throughput": 0.0}, "field output_throughput"),
        ({"completed": 0}, "no request was answered"),
        ({"completed": 10**9}, "field completed is 1,000,000,000, which is not at most 200,000"),
        ({"completed": "-4"}, "field completed is '-4', which is not at least 0"),
        ({"input_lens": [8, -8]}, "field input_lens.1 is -8, which is not at least 0"),
        ({"total_output_tokens": 4}, "fewer than 2 output tokens"),
        ({"request_rate": 4.0}, "held some back"),
        ({"request_rate": "trace"}, "at a changing rate"),
        ({"request_rate": 0.0}, "at a changing rate"),
        ({"output_throughput": 400.0}, "states 400.0 output tokens/s, but 20 in 0.5 s are 40.0"),
        ({"input_lens": [8], "output_lens": [5, 5]}, "1 input_lens and 2 output_lens"),
        ({"input_lens": [8], "output_lens": [5]}, "says that 4 requests were answered, but has lengths of 1"),
    ],
)
def test_a_figure_that_measures_nothing_is_refused(
    tmp_path: Path, make: Callable[..., dict[str, Any]], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInputError, match=said) as caught:
        read_benchmark_file(written(tmp_path / "bench.json", make(**changes)))
    assert caught.value.hint


@pytest.mark.parametrize(
    "result",
    [
        sglang_result(accept_length=2.1),
        sglang_result(server_info={"speculative_algorithm": "EAGLE"}),
        vllm_result(spec_decode_acceptance_length=1.8),
    ],
)
def test_a_server_that_drafts_is_refused(tmp_path: Path, result: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="drafts tokens"):
        read_benchmark_file(written(tmp_path / "bench.json", result))


@pytest.mark.parametrize("make", [sglang_result, vllm_result])
def test_every_field_that_is_missing_is_named(tmp_path: Path, make: Callable[..., dict[str, Any]]) -> None:
    result = make()
    del result["completed"], result["mean_ttft_ms"]
    with pytest.raises(BadInputError, match="lacks completed, mean_ttft_ms"):
        read_benchmark_file(written(tmp_path / "bench.json", result))
    with pytest.raises(
        BadInputError, match="backend, sharegpt_output_len or model_id, num_prompts, tokenizer_id"
    ):
        read_benchmark_file(written(tmp_path / "bench.json", {}))


def test_a_fault_names_its_run(tmp_path: Path) -> None:
    path = written(tmp_path / "b", sglang_result(), sglang_result(mean_tpot_ms=-1.0))
    with pytest.raises(BadInputError, match="run 2: field mean_tpot_ms"):
        read_benchmark_file(path)
    path.write_text(path.read_text()[:-40])
    with pytest.raises(BadInputError, match="line 2 of benchmark"):
        read_benchmark_file(path)


@pytest.mark.runtime
def test_the_fields_are_those_that_sglangs_client_writes() -> None:
    tree = ast.parse(source("bench_serving.py").read_text(encoding="utf-8"))
    written_keys = {
        key.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }
    assert set(sglang_result()) <= written_keys
    assert {"input_lens", "output_lens", "errors"} <= written_keys
    # Requests that got no answer are known by their errors alone.
    assert not {"failed", "num_prompts"} & written_keys


@pytest.mark.runtime
def test_the_settings_are_those_that_sglangs_server_reports() -> None:
    arguments = source("srt/server_args.py").read_text(encoding="utf-8")
    for name in SERVER_ARGUMENTS:
        assert f"\n    {name}: " in arguments


def test_requests_sent_over_more_than_a_month_are_no_run(tmp_path: Path) -> None:
    sent = {"request_rate": 8.0, "max_concurrency": None, "start_times": [0.0, 1.0, 2.0, 1e300]}
    with pytest.raises(BadInputError, match="start_times span 1e\\+300 s, more than 31 days"):
        _ = read_benchmark_file(written(tmp_path / "b", vllm_result(**sent))).runs


def without(result: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {field: value for field, value in result.items() if field not in fields}


def test_results_of_earlier_releases_are_read(tmp_path: Path) -> None:
    """SGLang 0.4 asked the server for nothing; vLLM's benchmark_serving.py of 2025 counted no failures."""
    sglang = without(sglang_result(), "tag", "server_info", "total_input_text_tokens", "total_throughput")
    vllm = without(vllm_result(), "endpoint_type", "label", "failed", "max_concurrent_requests", "rtfx")
    (early,) = read_benchmark_file(written(tmp_path / "sglang", sglang)).runs
    (other,) = read_benchmark_file(
        written(tmp_path / "vllm", vllm | {"backend": "vllm", "num_prompts": 7})
    ).runs
    assert (early.client, early.server, early.mean_tpot_ms) == ("sglang bench_serving", None, 20.0)
    assert (other.client, other.failed, other.requests, other.mean_tpot_ms) == (
        "vllm bench serve",
        3,
        4,
        20.0,
    )
    # Where the requests are listed, a data set may have held fewer than were asked for.
    listed = vllm | {"num_prompts": 7, "input_lens": [8] * 5, "output_lens": [5, 5, 5, 5, 0]}
    (run,) = read_benchmark_file(written(tmp_path / "listed", listed)).runs
    assert run.failed == 1


def test_vllms_client_may_measure_sglangs_server(tmp_path: Path) -> None:
    (run,) = read_benchmark_file(written(tmp_path / "b", vllm_result(backend="sglang"))).runs
    assert run.scheduler is Scheduler.SGLANG


LENGTHS = {"input_lens": [8] * 4, "output_lens": [5] * 4}
OPEN = {"request_rate": 8.0, "max_concurrency": None}


def test_arrivals_leave_out_requests_that_failed(tmp_path: Path) -> None:
    result = vllm_result(
        **OPEN,
        failed=1,
        input_lens=[8, 8, 9, 8, 8],
        output_lens=[5, 5, 0, 5, 5],
        start_times=[7.0, 7.125, 7.25, 7.375, 7.5],
    )
    (run,) = read_benchmark_file(written(tmp_path / "b", result)).runs
    assert (run.failed, run.arrivals_s) == (1, (0.0, 0.125, 0.375, 0.5))


@pytest.mark.parametrize(
    "own",
    [
        {"request_rate": "inf", "max_concurrency": None},
        {"request_rate": "inf", "max_concurrency": 3},
        {"request_rate": None, "max_concurrency": None, "ramp_up_strategy": "linear"},
    ],
)
def test_requests_that_carry_their_own_times_are_sent_at_them(tmp_path: Path, own: dict[str, Any]) -> None:
    """The client states the rate that it was given, or none, where a data set has times."""
    result = vllm_result(**own, **LENGTHS, start_times=[3.0, 3.125, 3.25, 3.5])
    (run,) = read_benchmark_file(written(tmp_path / "b", result)).runs
    # Four requests in half a second.
    assert (run.rate_per_s, run.arrivals_s) == (8.0, (0.0, 0.125, 0.25, 0.5))


@pytest.mark.parametrize("clients", [None, 2])
def test_clients_that_start_at_once_are_a_closed_loop(tmp_path: Path, clients: int | None) -> None:
    sent = [3.0, 3.001, 3.002, 3.003] if clients is None else [3.0, 3.001, 3.25, 3.251]
    result = vllm_result(max_concurrency=clients, **LENGTHS, start_times=sent)
    (run,) = read_benchmark_file(written(tmp_path / "b", result)).runs
    assert (run.rate_per_s, run.arrivals_s, run.clients) == (None, None, clients or 4)


@pytest.mark.parametrize(
    ("make", "cure"), [(vllm_result, "or with --save-detailed"), (sglang_result, "no times")]
)
def test_own_times_are_seen_by_how_many_were_in_flight(
    tmp_path: Path, make: Callable[..., dict[str, Any]], cure: str
) -> None:
    result = make(max_concurrency=None, request_rate="inf", max_concurrent_requests=1)
    with pytest.raises(
        BadInputError, match=r"times of their own \(at most 1 were in flight, not 4\)"
    ) as caught:
        read_benchmark_file(written(tmp_path / "b", result))
    assert caught.value.hint.endswith(cure)


def test_bursts_are_as_strong_as_the_client_was_told(tmp_path: Path) -> None:
    for stated, read in ((1.0, 1.0), (0.25, 0.25), (float("inf"), float("inf"))):
        (run,) = read_benchmark_file(written(tmp_path / "b", vllm_result(**OPEN, burstiness=stated))).runs
        assert (run.rate_per_s, run.arrivals_s, run.burstiness) == (8.0, None, read)


@pytest.mark.parametrize(
    ("result", "said", "cure"),
    [
        (
            without(vllm_result(), "mean_ttft_ms", "mean_tpot_ms", "median_itl_ms"),
            "lacks mean_ttft_ms, mean_tpot_ms",
            "--percentile-metrics ttft,tpot,itl",
        ),
        (
            without(vllm_result(backend="openai-embeddings"), "total_output_tokens", "mean_tpot_ms"),
            "is of openai-embeddings: no token was generated",
            "completions or chat",
        ),
        (sglang_result(backend="sglang-embedding"), "is of sglang-embedding", "completions or chat"),
        (sglang_result(mean_tpot_ms=0.0), "TPOT is 0, so answers came in one piece", "--disable-stream"),
        (sglang_result(mean_tpot_ms=-1e-5), "is -1e-05, which is not at least 0", "--disable-stream"),
        (sglang_result(total_input_tokens=0), "counts no input tokens", "one turn"),
        (
            sglang_result(server_info={"prefill": [{}], "decode": [{}]}),
            "servers that share prefill and decode",
            "the server that ran this placement",
        ),
    ],
)
def test_what_measures_no_step_of_one_server_says_why(
    tmp_path: Path, result: dict[str, Any], said: str, cure: str
) -> None:
    with pytest.raises(BadInputError, match=said) as caught:
        read_benchmark_file(written(tmp_path / "b", result))
    assert cure in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        # 30 ms and four times 20 ms are 110 ms; four of them in half a second are 0.88 in flight.
        ({"mean_ttft_ms": 0.03, "mean_tpot_ms": 0.02}, "takes 110.0 µs, so 0.00088 of the 4 requests"),
        ({"mean_ttft_ms": 3e4, "mean_tpot_ms": 2e4}, "takes 110.0 s, so 880 of the 4 requests"),
        ({**LENGTHS, "total_input_tokens": 320}, "states 320 input tokens in all, but its requests have 32"),
        (
            {**LENGTHS, "total_output_tokens": 24, "output_throughput": 48.0},
            "24 output tokens in all, but its requests have 20",
        ),
        ({**LENGTHS, "ttfts": [0.3] * 4}, "states 120 ms of TTFT in all, but its requests have 1,200"),
        ({**LENGTHS, "start_times": [1.0]}, "holds 4 input_lens and 1 start_times"),
    ],
)
@pytest.mark.parametrize("make", [sglang_result, vllm_result])
def test_figures_that_contradict_each_other_are_refused(
    tmp_path: Path, make: Callable[..., dict[str, Any]], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInputError, match=said):
        read_benchmark_file(written(tmp_path / "b", make(**changes)))
    details = {**LENGTHS, "ttfts": [0.02, 0.04, 0.03, 0.03]}
    (run,) = read_benchmark_file(written(tmp_path / "b", make(**details))).runs
    assert run.detailed
