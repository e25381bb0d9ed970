"""What a placement delivers at a level: step times, latencies and throughput on steps it was not solved on."""

from dataclasses import dataclass

import numpy as np

from placer.hbm import ServerSettings
from placer.level_cost import LevelCosts
from placer.profiler.serving.closed_loop import simulate_closed_loop
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
    prefill_us = np.zeros(1) if costs.prefill is None else costs.prefill.step_us(hot)
    served = simulate_closed_loop(
        clients=workload.concurrency,
        max_running=settings.max_running_requests,
        prompt_tokens=workload.prompt_tokens,
        output_tokens=workload.output_tokens,
        chunk_tokens=settings.chunk_tokens,
        decode_step_us=step_us,
        prefill_chunk_us=prefill_us,
        seed=seed,
    )
    prompts_known = costs.prefill is not None
    return Prediction(
        decode_step_ms=float(step_us.mean()) / 1e3,
        tpot_ms_mean=served.tpot_ms_mean,
        tpot_ms_p95=served.tpot_ms_p95,
        ttft_ms_mean=served.ttft_ms_mean if prompts_known else None,
        ttft_ms_p95=served.ttft_ms_p95 if prompts_known else None,
        output_tokens_per_s=served.output_tokens_per_s,
        cold_share=cold_share,
        per_layer_ms=tuple((layers_us.mean(axis=0) / 1e3).tolist()),
        moe_step_us=float(layers_us.sum(axis=1).mean()),
        output_token_us=costs.output_token_us(hot),
    )
