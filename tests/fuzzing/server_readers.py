"""Readers of what servers and their clients wrote, and of what users make by hand."""

import contextlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmark_results import sglang_result, vllm_result
from kt_log import line
from kt_server_logs import server_log
from placements import placement
from tiny_model import tiny_model

from fuzzing.archive_mutation import mutated_archive
from fuzzing.reader import Reader
from fuzzing.shown import show
from fuzzing.text_mutation import mutated_json_lines, mutated_text
from placer.answer.applied import applied_answer
from placer.arrivals import Arrivals, read_arrivals
from placer.benchmark_figures import benchmark_traffic
from placer.errors import PlacerError
from placer.exports.applied import Applied
from placer.exports.kt_applied import check_log
from placer.exports.vllm_log import check_vllm_log
from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument, write_placement
from placer.profiler.benchmark_file import BenchmarkFile, distinct_runs, read_benchmark_file
from placer.profiler.kt_timing_log import KtTimingLog, read_kt_timing_log
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.step_time import ConstantStepTimes
from placer.profiler.trace.prompt import Prompt, prompts_digest, read_prompts
from placer.runtime.load import load
from placer.runtime.vllm.applied import AppliedLayer, AppliedPlan, hot_digest
from placer.served_settings import served_mismatches
from placer.serving import serving_figures
from placer.solvers.bench.family import Size, generated
from placer.solvers.bench.instance import Instance
from placer.solvers.bench.instance_file import read_instance, write_instance
from placer.solvers.bench.level_choice import solve_levels
from placer.workload import Workload

__all__ = ["SERVER_READERS"]

_HOT = {1: [2, 0], 2: [], 3: [1, 3, 0, 2]}
_PLAN = placement(_HOT, layers=[1, 2, 3], experts=4)
_TIMES = ConstantStepTimes(decode_step_us=10_000, prefill_step_us=30_000)
_SERVER = Server(Scheduler.SGLANG, max_running=8, kv_tokens=16_384, chunk_tokens=2048)
_INFO = {
    "model_path": "/models/tiny-moe",
    "tp_size": 1,
    "kt_method": "RAWINT4",
    "kt_cpuinfer": 32,
    "kt_threadpool_count": 2,
    "kt_num_gpu_experts": 2,
    "max_running_requests": 8,
    "chunked_prefill_size": 2048,
    "kv_cache_dtype": "auto",
}


def _benchmarks(_folder: Path) -> Sequence[bytes]:
    details = {"input_lens": [6, 9, 7, 10], "output_lens": [3, 4, 5, 8], "errors": ["", "", "", ""]}
    sent = {"request_rate": 8.0, "max_concurrency": None, "start_times": [0.1, 0.2, 0.15, 0.4]}
    results: list[dict[str, Any]] = [
        sglang_result(server_info=_INFO, **details),
        vllm_result(**details),
        vllm_result(**details, **sent),
    ]
    several = "\n".join(json.dumps(result) for result in (sglang_result(), vllm_result()))
    return [*(json.dumps(result).encode() for result in results), several.encode()]


@cache
def _served() -> tuple[ModelSpec, PlacementDocument]:
    with TemporaryDirectory() as folder:
        model = tiny_model(Path(folder))
    return model, placement({1: [0, 1]}, layers=model.moe_layers, experts=model.experts)


def _use_benchmark(found: BenchmarkFile) -> None:
    files, _ = distinct_runs([found, found])
    model, plan = _served()
    for run in files[0].runs:
        for what, cure in served_mismatches(run.model, run.server, plan, model):
            assert what
            assert cure
        with contextlib.suppress(PlacerError):
            traffic = benchmark_traffic(run)
            Workload(
                int(traffic.prompt_tokens.mean()), max(2, int(traffic.output_tokens.mean())), run.clients
            )


def _timing_logs(_folder: Path) -> Sequence[bytes]:
    lines = [line(layer=layer, step=step) for step in (1, 2) for layer in (0, 5)]
    return ["\n".join(["[2026-11-29 12:00:00] server_args=...", *lines, "other"]).encode()]


def _use_timing_log(log: KtTimingLog) -> None:
    assert log.notes
    assert all(call.after_submit_us >= 0 for call in log.calls)


def _server_logs(_folder: Path) -> Sequence[bytes]:
    return [server_log(_PLAN, weights_gib=3.25, cache_gib=1.5).encode()]


def _plan_beside(folder: Path) -> None:
    write_placement(_PLAN, folder / "placement.json")


def _vllm_logs(folder: Path) -> Sequence[bytes]:
    _plan_beside(folder)
    lines = [
        "INFO vLLM API server version 0.32.0",
        *(
            AppliedLayer(n, 4, len(ids), 4 - len(ids), 10, 10, hot_digest(ids)).line()
            for n, ids in _HOT.items()
        ),
        AppliedPlan(3, 6, load(folder / "placement.json").sha256, "kt RAWINT4, 3 threads").line(),
        "INFO GPU KV cache size: 5,120 tokens",
    ]
    return ["\n".join(lines).encode()]


def _checked_vllm(path: Path) -> Applied:
    return check_vllm_log(path.parent / "placement.json", path)


def _show_applied(applied: Applied) -> None:
    show(applied_answer(applied))


def _arrivals(_folder: Path) -> Sequence[bytes]:
    table = "arrival_s,prompt_tokens,output_tokens\n0,512,128\n0.5,100,20\n1.25,7,2\n"
    rows = table.partition("\n")[2]
    return [b"0.0\n0.5\n0.75\n2\n", table.encode(), rows.encode(), table.replace("\n", "\r\n").encode()]


def _use_arrivals(found: Arrivals) -> None:
    prompt, output = found.mean_lengths or (512, 128)
    with contextlib.suppress(PlacerError):
        workload = Workload(prompt, output, 8, arrivals_s=found.times_s, request_lengths=found.lengths)
        serving_figures(_TIMES, _SERVER, workload, seed=0)


def _instances(folder: Path) -> Sequence[bytes]:
    written = []
    for family in ("multi-level", "unequal-layers"):
        write_instance(generated(family, size=Size(2, 16, 3)), folder / "instance.npz")
        written.append((folder / "instance.npz").read_bytes())
    return written


def _use_instance(instance: Instance) -> None:
    assert len(instance.sha256) == 64
    with contextlib.suppress(PlacerError):
        solve_levels(instance.problems(), gap=0.5, time_limit_s=0.2)


def _prompts(_folder: Path) -> Sequence[bytes]:
    lines = [
        {"prompt": "Once upon a time", "domain": "tales"},
        {"text": "Zwei"},
        {"messages": [{"role": "user", "content": "hi"}]},
        {"prompt_token_ids": [1, 2, 3], "domain": "ids"},
    ]
    return ["\n".join(json.dumps(each) for each in lines).encode()]


def _use_prompts(prompts: tuple[Prompt, ...]) -> None:
    assert len(prompts_digest(prompts)) == 64


SERVER_READERS = (
    Reader("benchmark", _benchmarks, mutated_json_lines, read_benchmark_file, _use_benchmark),
    Reader("timing-log", _timing_logs, mutated_text, read_kt_timing_log, _use_timing_log),
    Reader("server-log", _server_logs, mutated_text, lambda path: check_log(_PLAN, path), _show_applied),
    Reader("vllm-log", _vllm_logs, mutated_text, _checked_vllm, _show_applied, prepare=_plan_beside),
    Reader("arrivals", _arrivals, mutated_text, read_arrivals, _use_arrivals),
    Reader("instance", _instances, mutated_archive, read_instance, _use_instance),
    Reader(
        "prompts",
        _prompts,
        mutated_json_lines,
        lambda path: read_prompts([str(path)]),
        _use_prompts,
        file="p.jsonl",
    ),
)
