"""What a placement delivers at a level: step times, latencies and throughput on steps it was not solved on."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placer.band import FigureBands, figure_bands
from placer.hbm import ServerSettings
from placer.level_cost import LevelCosts
from placer.level_steps import LevelSteps
from placer.profiler.factor import UNCALIBRATED, Factors
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.step_time import SampledStepTimes, StepSamples
from placer.profiler.steps import StepKind
from placer.profiler.uncertainty import Uncertainty
from placer.serving import ServingFigures, serving_figures
from placer.solvers.problem import Mask
from placer.step_parts import TimeSplit
from placer.workload import Workload

VLLM_PAGE_TOKENS = 16
"""Tokens of a page of vLLM's KV pool by default; SGLang gives out single ones where a model allows it."""


@dataclass(frozen=True)
class Prediction:
    """Predicted figures of one placement at one level.

    Attributes
    ----------
    decode_step_ms
        Mean decode step at all running requests, base included.
    tpot_ms_mean, tpot_ms_p95, ttft_ms_mean, ttft_ms_p95
        Over simulated requests. Without prefill steps (no trace of prompts) prompts are not simulated and the
        ttft figures are None, as they are where requests arrive faster than the server finishes them.
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
    serving
        Everything that clients see.
    split
        Where the time of a decode step goes; None in the search for a level.
    bands
        What the figures lie between; None in the search for a level, and of baselines.
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
    serving: ServingFigures | None = None
    split: TimeSplit | None = None
    bands: FigureBands | None = None


def predict(
    costs: LevelCosts,
    hot: Mask,
    cold_share: float,
    settings: ServerSettings,
    workload: Workload,
    seed: int,
    scheduler: Scheduler = Scheduler.SGLANG,
) -> Prediction:
    """Figures of the placement ``hot`` (bool [L, E]) on the level's own steps alone, whatever number of requests runs.

    ``cold_share`` is the share of selections outside the hot set on the same requests.
    """
    layers_us = costs.decode.layer_us(hot)
    figures = serving_figures(
        _level_times(costs, layers_us.sum(axis=1), hot, workload, seed),
        level_server(settings, workload, scheduler),
        workload,
        seed,
    )
    return _prediction(costs, hot, layers_us, figures, cold_share, workload)


def predict_at_sizes(
    steps: LevelSteps,
    name: str,
    costs: LevelCosts,
    hot: Mask,
    cold_share: float,
    settings: ServerSettings,
    workload: Workload,
    seed: int,
    *,
    scheduler: Scheduler = Scheduler.SGLANG,
    uncertainty: Uncertainty | None = None,
) -> Prediction:
    """Figures of the placement ``hot``, called ``name`` in ``steps``, on steps of every size that its server runs.

    With ``uncertainty`` the figures get bands.
    """
    server = level_server(settings, workload, scheduler, sglang_page_tokens=steps.page_tokens)
    running = settings.max_running_requests

    def figures(factors: Factors) -> ServingFigures:
        return serving_figures(steps.step_times(name, seed, factors), server, workload, seed)

    mid = figures(UNCALIBRATED)
    parts = steps.parts(StepKind.DECODE, running)[name]
    split = parts.split(running * workload.mean_context_tokens)
    found = _prediction(costs, hot, parts.layers_us(), mid, cold_share, workload)
    bands = None
    if uncertainty is not None:
        bands = figure_bands(figures(uncertainty.fastest), mid, figures(uncertainty.slowest))
    return replace(found, decode_step_ms=split.step_ms, split=split, bands=bands)


def level_server(
    settings: ServerSettings,
    workload: Workload,
    scheduler: Scheduler = Scheduler.SGLANG,
    *,
    sglang_page_tokens: int = 1,
) -> Server:
    """The server of a level; more requests than clients never run.

    ``sglang_page_tokens`` is what SGLang gives the model's pool pages of.
    """
    running = settings.max_running_requests
    return Server(
        scheduler,
        max_running=running if workload.is_open_loop else min(workload.concurrency, running),
        kv_tokens=settings.kv_tokens,
        chunk_tokens=settings.chunk_tokens,
        page_tokens=VLLM_PAGE_TOKENS if scheduler is Scheduler.VLLM else sglang_page_tokens,
    )


def _prediction(
    costs: LevelCosts,
    hot: Mask,
    layers_us: NDArray[np.float64],
    figures: ServingFigures,
    cold_share: float,
    workload: Workload,
) -> Prediction:
    """``layers_us`` float [S, L] of decode steps at all running requests."""
    ttft = figures.ttft_ms
    judged = costs.prefill is not None or workload.slo_ttft_ms is None
    ttft_known = costs.prefill is not None and math.isfinite(ttft.mean)
    moe_step_us = float(layers_us.sum(axis=1).mean())
    return Prediction(
        decode_step_ms=(costs.decode.base_us + moe_step_us) / 1e3,
        tpot_ms_mean=figures.tpot_ms.mean,
        tpot_ms_p95=figures.tpot_ms.p95,
        ttft_ms_mean=ttft.mean if ttft_known else None,
        ttft_ms_p95=ttft.p95 if ttft_known else None,
        output_tokens_per_s=figures.output_tokens_per_s,
        cold_share=cold_share,
        per_layer_ms=tuple((layers_us.mean(axis=0) / 1e3).tolist()),
        moe_step_us=moe_step_us,
        output_token_us=costs.output_token_us(hot),
        goodput_tokens_per_s=figures.goodput_tokens_per_s if judged else None,
        serving=figures,
    )


def _level_times(
    costs: LevelCosts, layers_us: NDArray[np.float64], hot: Mask, workload: Workload, seed: int
) -> SampledStepTimes:
    """Times of the level's own sizes of steps; ``layers_us`` float [S] of its decode steps."""
    decode, prefill = costs.decode, costs.prefill
    base_us = decode.base_us - decode.kv_token_us * decode.tokens * workload.mean_context_tokens
    if prefill is None:
        chunk = StepSamples(1, np.zeros(1), 0.0, 0.0)
    else:
        chunk_us = prefill.layer_us(hot).sum(axis=1)
        chunk = StepSamples(prefill.tokens, chunk_us, prefill.base_us, decode.kv_token_us)
    own = StepSamples(decode.tokens, layers_us, base_us, decode.kv_token_us)
    return SampledStepTimes(decode=(own,), prefill=(chunk,), seed=seed)
