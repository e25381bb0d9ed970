"""What a placement delivers at a level: step times, latencies and throughput on steps it was not solved on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.hbm import ServerSettings
from placer.level_cost import LevelCosts
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.step_time import SampledStepTimes, StepSamples
from placer.serving import serving_figures
from placer.solvers.problem import Mask
from placer.workload import Workload


@dataclass(frozen=True)
class Prediction:
    """Predicted figures of one placement at one level.

    Attributes
    ----------
    decode_step_ms
        Mean decode step, base included.
    tpot_ms_mean, tpot_ms_p95, ttft_ms_mean, ttft_ms_p95
        Over requests of the simulated closed loop. Without prefill steps (no trace of prompts) prompts are
        not simulated and the ttft figures are None.
    output_tokens_per_s
        Of all clients together.
    cold_share
        Share of the routed selections that cold experts serve, over the decode steps.
    per_layer_ms
        Mean time of each MoE layer in a decode step, base excluded.
    moe_step_us
        Mean time of all MoE layers in a decode step, base excluded.
    output_token_us
        Microseconds per output token of all requests together, without queueing.
    goodput_tokens_per_s
        Output tokens per second of requests that keep every target; None without targets, or where a TTFT target
        cannot be judged because prompts are not simulated.
    """

    decode_step_ms: float
    tpot_ms_mean: float
    tpot_ms_p95: float
    ttft_ms_mean: float | None
    ttft_ms_p95: float | None
    output_tokens_per_s: float
    cold_share: float
    per_layer_ms: tuple[float, ...]
    moe_step_us: float
    output_token_us: float
    goodput_tokens_per_s: float | None = None


def predict(
    costs: LevelCosts, hot: Mask, cold_share: float, settings: ServerSettings, workload: Workload, seed: int
) -> Prediction:
    """Figures of the placement ``hot`` (bool [L, E]) on the level's steps.

    ``cold_share`` is the share of selections outside the hot set on the same requests.
    """
    layers_us = costs.decode.layer_us(hot)
    step_us = costs.decode.base_us + layers_us.sum(axis=1)
    figures = serving_figures(
        level_times(costs, layers_us.sum(axis=1), hot, workload, seed),
        level_server(settings, workload),
        workload,
        seed,
    )
    prompts_known = costs.prefill is not None
    judged = prompts_known or workload.slo_ttft_ms is None
    return Prediction(
        decode_step_ms=float(step_us.mean()) / 1e3,
        tpot_ms_mean=figures.tpot_ms.mean,
        tpot_ms_p95=figures.tpot_ms.p95,
        ttft_ms_mean=figures.ttft_ms.mean if prompts_known else None,
        ttft_ms_p95=figures.ttft_ms.p95 if prompts_known else None,
        output_tokens_per_s=figures.output_tokens_per_s,
        cold_share=cold_share,
        per_layer_ms=tuple((layers_us.mean(axis=0) / 1e3).tolist()),
        moe_step_us=float(layers_us.sum(axis=1).mean()),
        output_token_us=costs.output_token_us(hot),
        goodput_tokens_per_s=figures.goodput_tokens_per_s if judged else None,
    )


def level_server(settings: ServerSettings, workload: Workload) -> Server:
    """The SGLang server of a level; more requests than clients never run."""
    running = settings.max_running_requests
    return Server(
        Scheduler.SGLANG,
        max_running=running if workload.is_open_loop else min(workload.concurrency, running),
        kv_tokens=settings.kv_tokens,
        chunk_tokens=settings.chunk_tokens,
    )


def level_times(
    costs: LevelCosts, layers_us: NDArray[np.float64], hot: Mask, workload: Workload, seed: int
) -> SampledStepTimes:
    """Times of the level's own sizes of steps; ``layers_us`` float [S] of its decode steps."""
    decode, prefill = costs.decode, costs.prefill
    held = decode.tokens * workload.mean_context_tokens
    return SampledStepTimes(
        decode=(
            StepSamples(
                decode.tokens, layers_us, decode.base_us - decode.kv_token_us * held, decode.kv_token_us
            ),
        ),
        prefill=(
            StepSamples(1, np.zeros(1), 0.0, 0.0)
            if prefill is None
            else StepSamples(prefill.tokens, prefill.layer_us(hot).sum(axis=1), prefill.base_us, 0.0),
        ),
        seed=seed,
    )
