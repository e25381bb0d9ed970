"""What placer predicts for public measured points, from datasheets and the published skew of routers alone."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from placer.baselines import BASELINES
from placer.datasheet import gpu_datasheet
from placer.examples.published_point import STRATEGIES, PublishedPoint, published_model
from placer.hbm import ServerSettings
from placer.level_cost import LevelCosts, level_costs
from placer.model.spec import ModelSpec
from placer.prediction import predict
from placer.profiler.cost import CostModel, Provenance, Regime, SideCost
from placer.profiler.datasheet_profile import datasheet_gpu, datasheet_profile
from placer.profiler.replay import replay_decode, replay_prefill
from placer.profiler.trace.selection import selection_counts
from placer.profiler.trace.split import split_requests
from placer.profiler.trace.synth import synthesise
from placer.profiler.trace.synth_presets import LayerShape, SynthPreset
from placer.profiler.trace.trace import Phase, TokenTrace
from placer.workload import Workload

SHAREGPT = Workload(prompt_tokens=217, output_tokens=200, concurrency=1)
"""Mean lengths of ShareGPT's conversations as serving benchmarks take them: vllm pull requests 29217 and 18566."""
CHUNK_TOKENS = 2048
STEPS, TABLE_STEPS, PREFILL_STEPS = 96, 384, 2
"""Replayed decode steps of a point and of the table of strategies, and prefill steps: more change no figure by 1 %."""
_PRESETS = {"Qwen3-30B-A3B": "qwen3-30b-a3b", "Qwen3-Next-80B-A3B": "qwen3-next-80b-a3b"}
_NEIGHBOURS = {
    "DeepSeek-R1": (1.2, "GLM-5.2"),
    "Kimi-K2-Thinking": (1.2, "GLM-5.2"),
    "MiniMax-M2.1": (1.2, "GLM-5.2"),
    "gpt-oss-120b": (1.7, "gpt-oss-20b"),
}
"""Models without published counts: Gamma shape of a router that has them, and whose."""
_NO_COLD_SIDE = SideCost(
    (Regime(1, None, 0.0, 0.0, 0.0, 1, 0.0, (0.0,), 0.0, 1 << 30),), Provenance.DATASHEET
)


def cost_model(point: PublishedPoint, model: ModelSpec) -> CostModel:
    """Both sides of a layer by datasheet; without a CPU there is nothing to wait for and nothing to transfer."""
    if point.cpu:
        profile = datasheet_profile(
            model,
            point.cpu,
            point.gpu,
            point.tp,
            method=point.method,
            threads=point.threads,
            adjustment=point.adjustment,
        )
        return profile.cost_model()
    gpu = datasheet_gpu(model, gpu_datasheet(point.gpu), point.tp)
    return CostModel(_NO_COLD_SIDE, gpu.hot, gpu.rates.with_transfers(0.0))


def routing(model: ModelSpec) -> TokenTrace:
    """A synthetic trace with the published skew of ``model``'s routers, or that of a neighbour."""
    return _routing(model.name, len(model.moe_layers), model.experts, model.top_k)


@cache
def _routing(name: str, layers: int, experts: int, top_k: int) -> TokenTrace:
    if name in _PRESETS:
        return synthesise(_PRESETS[name], requests=64, prompt_tokens=0, output_tokens=12)
    skew, whose = _NEIGHBOURS[name]
    preset = SynthPreset(
        model=name,
        layers=layers,
        experts=experts,
        top_k=top_k,
        shapes=(LayerShape(0, skew, 2.0, 0.3), LayerShape(layers - 1, skew, 2.0, 0.3)),
        domain_shape=16.0,
        prompt_domain_shape=16.0,
        prompt_overlap=1.0,
        prompt_reuse=1.0,
        origin=f"the skew of {whose}",
    )
    return synthesise(preset, requests=64, prompt_tokens=0, output_tokens=8)


def predicted(point: PublishedPoint) -> float:
    """What ``point`` measured, in its unit.

    Clients of equal requests that start together end together: a run is rounds of all of them, and one of the rest.
    """
    if point.requests is None:
        return _in_stride(point)
    rounds, rest = divmod(point.requests, point.running)
    rates = [(rounds * point.running, point)] + [(rest, replace(point, running=rest))] * (rest > 0)
    return point.requests / sum(count / _in_stride(each) for count, each in rates)


def _in_stride(point: PublishedPoint) -> float:
    """As `predicted`, of a server on which all clients of ``point`` run all the time."""
    model = published_model(point.model, point.weights)
    trace = routing(model)
    workload = Workload(point.prompt_tokens, point.output_tokens, point.running)
    costs = _costs(model, cost_model(point, model), trace, workload, point.tp, STEPS)
    hot = np.broadcast_to(np.arange(model.experts) < _hot(point, model), _shape(model)).copy()
    step_ms = float(costs.decode.step_us(hot).mean()) / 1e3
    if point.kind == "step_ms":
        return step_ms
    if point.kind == "decode_tokens_per_s":
        return 1e3 / step_ms
    found = predict(costs, hot, 0.0, _settings(workload), workload, seed=0)
    return found.tpot_ms_mean if point.kind == "tpot_ms" else found.output_tokens_per_s


def predicted_strategies(percents: tuple[int, ...]) -> dict[int, dict[str, float]]:
    """kt-kernel's table as predicted: tokens per second by per cent of hot experts and strategy.

    One client sends ShareGPT's requests. Experts are ranked by half of a synthetic trace with as many prompt as
    output tokens, as a server would record it, and the other half is served.
    """
    model = published_model("Qwen3-Next-80B-A3B", "fp8")
    recorded, served = split_requests(
        synthesise("qwen3-next-80b-a3b", requests=32, prompt_tokens=48, output_tokens=48, domains=1),
        (0.5, 0.5),
        seed=0,
    )
    assert isinstance(served, TokenTrace)
    profile = datasheet_profile(model, "xeon-6454sx2", "rtx-4090", 4, method="FP8")
    costs = _costs(model, profile.cost_model(), served, SHAREGPT, 4, TABLE_STEPS)
    counts = selection_counts(recorded)

    def tokens_per_s(strategy: str, percent: int) -> float:
        hot = BASELINES[strategy](counts, counts.size * percent // 100)
        # One client never waits for another: its speed is the reciprocal of its time per token.
        return 1e6 / costs.output_token_us(hot)

    return {percent: {name: tokens_per_s(name, percent) for name in STRATEGIES} for percent in percents}


def gains(table: Mapping[str, float]) -> dict[str, float]:
    """What ``frequency`` gains over the other strategies of one row, as a fraction."""
    return {name: table["frequency"] / table[name] - 1.0 for name in STRATEGIES if name != "frequency"}


def _costs(
    model: ModelSpec, cost: CostModel, trace: TokenTrace, workload: Workload, tp: int, steps: int
) -> LevelCosts:
    settings = _settings(workload)
    chunk = min(settings.chunk_tokens, workload.prompt_tokens)
    decode = replay_decode(trace, workload.concurrency, steps, seed=0)
    prefill = replay_prefill(
        trace, chunk, PREFILL_STEPS, seed=0, from_decode=not (trace.phase == Phase.PREFILL).any()
    )
    return level_costs(model, cost, decode, prefill, settings, workload, tp)


def _settings(workload: Workload) -> ServerSettings:
    """A server that holds every client's request."""
    held = 2 * workload.concurrency * workload.request_tokens
    return ServerSettings(workload.concurrency, held, CHUNK_TOKENS, "bf16")


def _shape(model: ModelSpec) -> tuple[int, int]:
    return len(model.moe_layers), model.experts


def _hot(point: PublishedPoint, model: ModelSpec) -> int:
    return point.hot if point.cpu else model.experts
