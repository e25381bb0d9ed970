"""One model served by vLLM's CPU engine: its parts timed apart, then its benchmark, predicted from those parts."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from placer.examples.engine_steps import EngineSteps, read_engine_steps
from placer.examples.random_moe import RandomMoe, write_random_moe
from placer.examples.serving_prediction import AS_TIMED, Calibrated, Figures, Predictor, cpu_cost_model
from placer.examples.vllm_client import ClientRuns, busy_file
from placer.examples.vllm_probe import Probe
from placer.examples.vllm_process import VllmEnvironment, run_to_end, serving
from placer.examples.vllm_stopwatch import RECORD, plugin_folder
from placer.kernels.expert_shape import ExpertShape
from placer.model.spec import ModelSpec, read_model
from placer.profiler.benchmark_file import read_benchmark_file
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving_benchmark import ServingBenchmark
from placer.profiler.timing.campaign import time_campaign
from placer.profiler.timing.kernel_profile import KernelProfile, kernel_profile
from placer.profiler.timing.spec import CampaignSpec

MAX_RUNNING, CHUNK_TOKENS, PAGE_TOKENS = 16, 256, 32
BUNDLED = Path(__file__).parent / "tiny-moe"
KV_BYTES = 1 << 30

Say = Callable[[str], None]


@dataclass(frozen=True)
class ServingCase:
    """A model, its traffic, and how long its parts are timed.

    Attributes
    ----------
    name
        What the model is called.
    sizes
        Of a checkpoint with random weights; None for the bundled tiny model.
    prompt_tokens, output_tokens, variation
        Mean lengths of requests, and how far they spread around them, as a share.
    runs
        Requests by number of clients.
    calibrated_at
        The number of clients whose run the factors and the null model are fitted to.
    kernel_seconds
        Wall time of the expert kernel's timing.
    batches, steps
        Decode batches that the engine is probed with, and decode steps of each.
    """

    name: str
    sizes: RandomMoe | None
    prompt_tokens: int
    output_tokens: int
    variation: float
    runs: dict[int, int]
    calibrated_at: int
    kernel_seconds: float
    batches: tuple[int, ...]
    steps: int


@dataclass(frozen=True)
class Point:
    """One number of clients: measured, predicted without and with the factors, and by constant steps.

    ``others_busy`` is the share of the run for which the cores of client and API server were busy.
    """

    clients: int
    requests: int
    fitted: bool
    measured: Figures
    uncalibrated: Figures
    predicted: Figures
    null: Figures
    others_busy: float


@dataclass(frozen=True)
class ServedCase:
    """What came of a case."""

    case: ServingCase
    kernel: KernelProfile
    steps: EngineSteps
    calibrated: Calibrated
    points: tuple[Point, ...]


def serve_case(case: ServingCase, environment: VllmEnvironment, folder: Path, say: Say) -> ServedCase:
    """Time the parts, serve, predict; ``folder`` takes the checkpoint, logs and results.

    Raises
    ------
    MissingComponentError
        When vLLM cannot run here.
    """
    model_folder = folder / case.name if case.sizes else BUNDLED
    if case.sizes is not None:
        say("writing a checkpoint with random weights")
        write_random_moe(model_folder, case.sizes)
    model = read_model(model_folder)
    say("timing the expert kernel")
    kernel = _kernel(case, model, environment)
    say("timing the engine around it, and recording its routing")
    steps = _probe(case, model, model_folder, environment, folder)
    say("serving under the benchmark")
    results = _serve(case, model_folder, environment, folder)
    say("predicting")
    server = Server(
        Scheduler.VLLM,
        max_running=MAX_RUNNING,
        kv_tokens=KV_BYTES // model.kv_bytes_per_token_per_gpu(1, "bf16"),
        chunk_tokens=CHUNK_TOKENS,
        page_tokens=PAGE_TOKENS,
    )
    cost = cpu_cost_model(kernel.cost, steps.base_cost(kernel.machine.cpu))
    predictor = Predictor(model, cost, steps.trace, server)
    fitted, _, _ = results[case.calibrated_at]
    calibrated = predictor.calibrated(fitted)
    null = predictor.null_times(fitted)
    points = tuple(
        Point(
            clients=clients,
            requests=run.requests,
            fitted=clients == case.calibrated_at,
            measured=measured,
            uncalibrated=predictor.figures(run, AS_TIMED),
            predicted=predictor.figures(run, calibrated),
            null=predictor.null_figures(run, null),
            others_busy=others_busy,
        )
        for clients, (run, measured, others_busy) in results.items()
    )
    return ServedCase(case, kernel, steps, calibrated, points)


def _kernel(case: ServingCase, model: ModelSpec, environment: VllmEnvironment) -> KernelProfile:
    """vLLM's expert kernel, on one thread and on as many bytes of weights as the server cycles through."""
    shape = ExpertShape(model.expert_hidden_size, model.expert_intermediate_size, model.experts, model.top_k)
    spec = CampaignSpec(
        device="cpu",
        backend="vllm-cpu",
        threads=1,
        subpools=1,
        shape=shape,
        seed=0,
        max_seconds=case.kernel_seconds,
        resident_bytes=2 * shape.parameters * model.experts * len(model.moe_layers),
    )
    samples = time_campaign(spec, python=str(environment.python))
    return kernel_profile(spec, samples, "the kernel that vLLM's CPU engine runs")


def _probe(
    case: ServingCase, model: ModelSpec, model_folder: Path, environment: VllmEnvironment, folder: Path
) -> EngineSteps:
    marks, record, asked = folder / "marks.json", folder / "calls.bin", folder / "probe.json"
    probe = Probe(
        model=str(model_folder),
        vocabulary=model.config["vocab_size"],
        engine_core=environment.core,
        max_running=MAX_RUNNING,
        chunk_tokens=CHUNK_TOKENS,
        chunks=(16, 64, 128, CHUNK_TOKENS),
        repeats=7,
        batches=case.batches,
        prompt_tokens=case.prompt_tokens,
        steps=case.steps,
        marks=str(marks),
    )
    asked.write_text(probe.to_json(), encoding="utf-8")
    stopwatch = plugin_folder(folder / "stopwatch")
    path = f"{stopwatch}:{environment.variables({}).get('PYTHONPATH', '')}".rstrip(":")
    run_to_end(
        environment,
        ["-m", "placer.examples.vllm_probe", str(asked)],
        folder / "probe.log",
        {RECORD: str(record), "PYTHONPATH": path},
        what="vLLM's engine",
    )
    return read_engine_steps(record, marks, model)


def _serve(
    case: ServingCase, model_folder: Path, environment: VllmEnvironment, folder: Path
) -> dict[int, tuple[ServingBenchmark, Figures, float]]:
    """Every run as `placer calibrate` reads it, the figures that its client states, and how busy its cores were."""
    files = {clients: folder / f"clients-{clients}.json" for clients in case.runs}
    flags = [
        *("--block-size", str(PAGE_TOKENS), "--no-enable-prefix-caching"),
        *("--max-num-seqs", str(MAX_RUNNING), "--max-num-batched-tokens", str(CHUNK_TOKENS)),
    ]
    with serving(environment, model_folder, flags, folder / "server.log") as port:
        asked = ClientRuns(
            model=str(model_folder),
            served_name=model_folder.name,
            port=port,
            engine_core=environment.core,
            prompt_tokens=case.prompt_tokens,
            output_tokens=case.output_tokens,
            variation=case.variation,
            runs=tuple((clients, requests, str(files[clients])) for clients, requests in case.runs.items()),
        )
        spec = folder / "runs.json"
        spec.write_text(asked.to_json(), encoding="utf-8")
        run_to_end(
            environment,
            ["-m", "placer.examples.vllm_client", str(spec)],
            folder / "client.log",
            {},
            what="vLLM's serving benchmark",
        )
    return {clients: _result(file) for clients, file in files.items()}


def _result(file: Path) -> tuple[ServingBenchmark, Figures, float]:
    (run,) = read_benchmark_file(file).runs
    p95 = float(json.loads(file.read_text(encoding="utf-8"))["p95_tpot_ms"])
    (others_busy,) = json.loads(busy_file(file).read_text(encoding="utf-8"))
    return run, Figures(run.output_tokens_per_s, run.mean_tpot_ms, p95, run.mean_ttft_ms), others_busy
