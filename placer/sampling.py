"""How many steps a level is solved on, and the correction that brings their sample to the whole trace."""

import numpy as np
from numpy.typing import NDArray

from placer.level_cost import StepCosts
from placer.profiler.cost import CostModel
from placer.profiler.steps import Steps
from placer.solvers.problem import Mask

_SAMPLED_TOKENS = 1024
LEAST_STEPS = 48
_MOST_STEPS = 512
_WHOLE_ENTRIES = 40_000_000
_BLOCK_STEPS = 256


def decode_steps(concurrency: int) -> int:
    """Decode steps to solve on: about 1,024 tokens' worth, so that their number grows as 1/R."""
    return min(_MOST_STEPS, max(LEAST_STEPS, _SAMPLED_TOKENS // concurrency))


def prefill_steps(chunk_tokens: int) -> int:
    """Prefill chunks to solve on: a chunk already averages over its tokens."""
    return 8 if chunk_tokens >= 1024 else 16


def whole_trace_steps(trace_tokens: int, step_tokens: int, layer_experts: int) -> int:
    """Steps that play the whole trace once, held to about 40 million entries [S, L · E]."""
    most = max(LEAST_STEPS, _WHOLE_ENTRIES // layer_experts)
    return max(1, min(most, trace_tokens // step_tokens))


def expected_expert_us(cost: CostModel, steps: Steps) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean cost per step that each expert adds to the hot and to the cold side: float [L, E] each."""
    S, L, E = steps.rows.shape
    hot, cold = np.zeros((L, E)), np.zeros((L, E))
    for start in range(0, S, _BLOCK_STEPS):
        rows, tokens = steps.rows[start : start + _BLOCK_STEPS], steps.tokens[start : start + _BLOCK_STEPS]
        hot += cost.hot.expert_us(rows, tokens).sum(axis=0)
        cold += cost.cold.expert_us(rows, tokens).sum(axis=0)
    return hot / S, cold / S


def sampling_correction(
    sample: StepCosts, expected_hot_us: NDArray[np.float64], expected_cold_us: NDArray[np.float64], plan: Mask
) -> NDArray[np.float64]:
    """Control variate of sampled steps: float [L, E], microseconds per step and hot expert.

    The sample's mean cost of an expert differs from the whole trace's; where a layer's cold side binds in a
    share κ of the steps (under ``plan``), making the expert hot changes the expected time by κ of its cold
    cost and 1 − κ of its hot cost. The correction is that change at the trace's means less the change at the
    sample's (the regression estimate of a mean by a covariate with known expectation).
    """
    hot_us, cold_us = sample.side_us(plan)
    cold_binds = (cold_us >= hot_us).mean(axis=0)[:, None]
    cold_excess = expected_cold_us - sample.cold_us.mean(axis=0, dtype=np.float64)
    hot_excess = expected_hot_us - sample.hot_us.mean(axis=0, dtype=np.float64)
    return np.asarray((1 - cold_binds) * hot_excess - cold_binds * cold_excess)
