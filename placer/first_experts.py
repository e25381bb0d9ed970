"""First experts: what steps take when the first n experts of every layer are hot, for every n at once."""

import numpy as np
from numpy.typing import NDArray

from placer.hbm import ServerSettings
from placer.level_cost import StepCosts, base_costs, prompt_steps, step_costs
from placer.model.spec import ModelSpec
from placer.objective import Weighting
from placer.profiler.cost import CostModel
from placer.profiler.steps import StepKind, Steps
from placer.replays import Replays
from placer.workload import Workload

Floats = NDArray[np.float64]
_BLOCK_STEPS = 16


def layers_us_by_count(costs: StepCosts) -> Floats:
    """Mean over the steps of what their MoE layers take, by the number of hot experts per layer: float [E + 1].

    Element n is the mean of ``costs.layer_us(hot).sum(axis=1)`` where the first n experts of each layer are hot.
    """
    S, L, E = costs.hot_us.shape
    total = np.zeros(E + 1)
    for start in range(0, S, _BLOCK_STEPS):
        block = slice(start, start + _BLOCK_STEPS)
        count = costs.hot_us[block].shape[0]
        hot_us, cold_us, heaviest_us = np.zeros((3, count, L, E + 1))
        np.cumsum(costs.hot_us[block], axis=2, dtype=np.float64, out=hot_us[:, :, 1:])
        hot_us[:, :, 1:] += costs.hot_fixed_us[block, None, None]
        # Cold are those from n on: sums and maxima from the last expert down.
        backwards = costs.cold_us[block, :, ::-1]
        np.cumsum(backwards, axis=2, dtype=np.float64, out=cold_us[:, :, 1:])
        np.maximum.accumulate(backwards, axis=2, out=heaviest_us[:, :, 1:])
        np.maximum(cold_us, costs.heaviest_factor[block, None, None] * heaviest_us, out=cold_us)
        fixed_us = costs.cold_fixed_us[block, None, None] * (heaviest_us > 0)
        cold_us += np.maximum(fixed_us, costs.cold_idle_us[block, None, None])
        total += np.maximum(hot_us, cold_us[:, :, ::-1]).sum(axis=(0, 1))
    return np.asarray(total / S)


class FirstExperts:
    """Mean times of levels under every number of hot experts per layer; each size of step is costed once."""

    def __init__(self, model: ModelSpec, cost: CostModel, replays: Replays) -> None:
        self._model = model
        self._cost = cost
        self._replays = replays
        self._layers_us: dict[tuple[StepKind, int], Floats] = {}

    def weighted_us(
        self, settings: ServerSettings, workload: Workload, tp: int, weighting: Weighting
    ) -> Floats:
        """As `LevelCosts.weighted_us` with the first n experts of each layer hot, by n: float [E + 1]."""
        running = settings.max_running_requests
        prompt = prompt_steps(settings, workload)
        parts = [(self._replays.decode(running), weighting.decode / running)]
        sizes = ((prompt.chunk_tokens, prompt.chunks), (prompt.rest_tokens, 1.0))
        for tokens, count in sizes:
            if tokens and (prefill := self._replays.prefill(tokens)) is not None:
                parts.append((prefill, weighting.prefill * count / workload.output_tokens))
        total = np.zeros(self._model.experts + 1)
        for steps, share in parts:
            if share > 0:
                total += share * self._step_us(steps, settings, workload, tp)
        return total

    def _step_us(self, steps: Steps, settings: ServerSettings, workload: Workload, tp: int) -> Floats:
        kind, tokens = steps.kind, int(steps.tokens[0])
        if (kind, tokens) not in self._layers_us:
            costs = step_costs(self._model, self._cost, steps, settings, workload, tp)
            self._layers_us[kind, tokens] = layers_us_by_count(costs)
        base_us, _ = base_costs(self._model, self._cost, kind, tokens, settings, workload, tp)
        return base_us + self._layers_us[kind, tokens]
