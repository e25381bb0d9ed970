"""How many steps a level is solved on, and the correction that brings their sample to the whole trace."""

import numpy as np
from numpy.typing import NDArray

from placer.level_cost import StepCosts
from placer.profiler.cost import CostModel
from placer.profiler.replay import replay_decode
from placer.profiler.trace.trace import Trace
from placer.solvers.problem import Mask

_SAMPLED_TOKENS = 1024
_LEAST_STEPS = 48
_MOST_STEPS = 512
_PRIOR_BATCHES = 8


def decode_steps(concurrency: int) -> int:
    """Decode steps to solve on: about 1,024 tokens' worth, so that their number grows as 1/R."""
    return min(_MOST_STEPS, max(_LEAST_STEPS, _SAMPLED_TOKENS // concurrency))


def prefill_steps(chunk_tokens: int) -> int:
    """Prefill chunks to solve on: a chunk already averages over its tokens."""
    return 8 if chunk_tokens >= 1024 else 16


def expected_expert_us(
    trace: Trace, cost: CostModel, *, concurrency: int, steps: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean cost per decode step that each expert adds to the hot and to the cold side.

    Float [L, E] each, over ``_PRIOR_BATCHES`` further replays of ``steps`` steps (held one at a time).
    """
    hot = np.zeros(0)
    cold = np.zeros(0)
    for batch in range(_PRIOR_BATCHES):
        replayed = replay_decode(trace, concurrency, steps, seed=seed + 1 + batch)
        mean_hot = cost.hot.expert_us(replayed.rows, replayed.tokens).mean(axis=0)
        mean_cold = cost.cold.expert_us(replayed.rows, replayed.tokens).mean(axis=0)
        hot = mean_hot if batch == 0 else hot + mean_hot
        cold = mean_cold if batch == 0 else cold + mean_cold
    return hot / _PRIOR_BATCHES, cold / _PRIOR_BATCHES


def sampling_correction(
    sample: StepCosts, expected_hot_us: NDArray[np.float64], expected_cold_us: NDArray[np.float64], plan: Mask
) -> NDArray[np.float64]:
    """Control variate of the sampled decode steps: float [L, E], microseconds per step and hot expert.

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
