"""Predictions of an engine whose experts all run on the CPU: what is fitted to one run comes back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmark_results import vllm_result, written
from profiles import TRUTH
from small_traces import token_trace
from tiny_model import tiny_model

from placer.benchmark_figures import benchmark_traffic
from placer.examples.engine_steps import EngineSteps
from placer.examples.serving_prediction import AS_TIMED, Calibrated, Figures, Predictor, cpu_cost_model
from placer.profiler.benchmark_file import read_benchmark_file
from placer.profiler.factor import Factors
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.simulation import simulate
from placer.profiler.serving.step_time import ConstantStepTimes
from placer.profiler.serving_benchmark import ServingBenchmark
from placer.profiler.trace.trace import TokenTrace

SERVER = Server(Scheduler.VLLM, max_running=8, kv_tokens=10_000, chunk_tokens=64, page_tokens=32)


@pytest.fixture(scope="module")
def trace() -> TokenTrace:
    ids = np.argsort(np.random.default_rng(0).random((2000, 4, 8)), axis=2)[:, :, :2]
    return token_trace(
        ids,
        experts=8,
        request=np.repeat(np.arange(40), 50).tolist(),
        phase=([0] * 25 + [1] * 25) * 40,
    )


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory, trace: TokenTrace) -> Predictor:
    base = EngineSteps({16: 2_000.0, 64: 5_000.0}, {1: 1_000.0, 8: 2_500.0}, {}, trace).base_cost("a CPU")
    model = tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-moe")
    return Predictor(model, cpu_cost_model(TRUTH, base), trace, SERVER)


def run(folder: Path, figures: Figures | None = None) -> ServingBenchmark:
    """32 requests of four clients with outputs of 8 to 24 tokens, measured as ``figures``."""
    lengths = {"input_lens": [32] * 32, "output_lens": [8, 16, 24, 16] * 8}
    totals = {"completed": 32, "num_prompts": 32, "total_input_tokens": 1024, "total_output_tokens": 512}
    measured = {}
    if figures is not None:
        measured = {"mean_tpot_ms": figures.tpot_ms, "mean_ttft_ms": figures.ttft_ms}
    throughput = 40.0 if figures is None else figures.output_tokens_per_s
    result = vllm_result(
        max_concurrency=4,
        output_throughput=throughput,
        duration=512 / throughput,
        **totals,
        **lengths,
        **measured,
    )
    (read,) = read_benchmark_file(written(folder / "bench.json", result)).runs
    return read


def test_what_a_slower_engine_and_its_clients_add_comes_back(predictor: Predictor, tmp_path: Path) -> None:
    truth = Calibrated(Factors(base=1.4), client_us=3_000.0)
    found = predictor.calibrated(run(tmp_path, predictor.figures(run(tmp_path), truth)))
    assert found.factors.base == pytest.approx(1.4, rel=0.05)
    assert found.client_us == pytest.approx(3_000, rel=0.3)
    # The kernel's measurements are nobody's to change.
    assert found.factors.changed == ("base",)


def test_constant_steps_fit_a_server_of_constant_steps(predictor: Predictor, tmp_path: Path) -> None:
    asked = run(tmp_path)
    served = simulate(benchmark_traffic(asked), SERVER, ConstantStepTimes(2_000.0, 5_000.0))
    measured = run(tmp_path, Figures.of(served))
    null = predictor.null_times(measured)
    assert (null.decode_step_us, null.prefill_step_us) == pytest.approx((2_000, 5_000))
    assert predictor.null_figures(measured, null).tpot_p95_ms == pytest.approx(Figures.of(served).tpot_p95_ms)


def test_requests_that_decode_beside_a_prompt_add_what_they_add_alone(
    predictor: Predictor, tmp_path: Path
) -> None:
    times = predictor.step_times(run(tmp_path), AS_TIMED)
    # Of 8 decoding requests 2,500 us are base, of 8 tokens of a prompt 1,000 + 7/15 of 1,000.
    alone, beside = (
        np.mean([times.prefill_us(requests, tokens, 0) for _ in range(200)])
        for requests, tokens in ((0, 40), (8, 32))
    )
    extra = (2_500 - 1_000 - 1_000 * 7 / 15) * (1 + 1 / 7)
    assert beside - alone == pytest.approx(extra, rel=0.1)


def test_a_client_that_takes_its_time_is_seen_in_ttft_and_throughput(
    predictor: Predictor, tmp_path: Path
) -> None:
    slow = replace(AS_TIMED, client_us=10_000.0)
    before, after = (predictor.figures(run(tmp_path), each) for each in (AS_TIMED, slow))
    assert after.ttft_ms > before.ttft_ms + 5
    assert after.output_tokens_per_s < before.output_tokens_per_s
