"""What a placement delivers at a level: step times, latencies and throughput on steps it was not solved on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.hbm import ServerSettings
from placer.level_cost import LevelCosts
from placer.profiler.serving.served import Served
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.simulation import simulate
from placer.profiler.serving.step_time import SampledStepTimes, StepSamples
from placer.profiler.serving.traffic import closed_loop, fixed_lengths
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
        The solver's objective: microseconds per output token.
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


def predict(
    costs: LevelCosts, hot: Mask, cold_share: float, settings: ServerSettings, workload: Workload, seed: int
) -> Prediction:
    """Figures of the placement ``hot`` (bool [L, E]) on the level's steps.

    ``cold_share`` is the share of selections outside the hot set on the same requests.
    """
    layers_us = costs.decode.layer_us(hot)
    step_us = costs.decode.base_us + layers_us.sum(axis=1)
    served = _serve(costs, layers_us.sum(axis=1), hot, settings, workload, seed)
    counted = slice(workload.concurrency, -workload.concurrency)
    tpot, ttft = served.tpot_ms(counted), served.ttft_ms(counted)
    prompts_known = costs.prefill is not None
    return Prediction(
        decode_step_ms=float(step_us.mean()) / 1e3,
        tpot_ms_mean=tpot.mean,
        tpot_ms_p95=tpot.p95,
        ttft_ms_mean=ttft.mean if prompts_known else None,
        ttft_ms_p95=ttft.p95 if prompts_known else None,
        output_tokens_per_s=served.steady_output_tokens_per_s(workload.concurrency),
        cold_share=cold_share,
        per_layer_ms=tuple((layers_us.mean(axis=0) / 1e3).tolist()),
        moe_step_us=float(layers_us.sum(axis=1).mean()),
        output_token_us=costs.output_token_us(hot),
    )


def _serve(
    costs: LevelCosts,
    layers_us: NDArray[np.float64],
    hot: Mask,
    settings: ServerSettings,
    workload: Workload,
    seed: int,
) -> Served:
    """A closed loop of the workload's clients on the level's steps; ``layers_us`` float [S] of its decode steps.

    Each client's first request is cut to a random length, so that the clients are out of step from the start;
    the first and the last request of each are for warming up and for running dry.
    """
    decode, prefill = costs.decode, costs.prefill
    held = decode.tokens * workload.mean_context_tokens
    times = SampledStepTimes(
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
    clients = workload.concurrency
    prompts, outputs = fixed_lengths(
        2 * clients + max(64, 4 * clients), workload.prompt_tokens, workload.output_tokens
    )
    outputs[:clients] = np.random.default_rng(seed).integers(1, workload.output_tokens, size=clients)
    server = Server(
        Scheduler.SGLANG,
        max_running=min(clients, settings.max_running_requests),
        kv_tokens=settings.kv_tokens,
        chunk_tokens=settings.chunk_tokens,
    )
    return simulate(closed_loop(clients, prompts, outputs), server, times)
