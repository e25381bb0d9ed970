"""GPU-only serving: how a model can be spread over some GPUs with all of its experts, and what a layer takes."""

import numpy as np

from placer.errors import BadInputError
from placer.model.spec import ModelSpec
from placer.modes.layer_times import Floats, LayerTimes
from placer.modes.steps import ComparedSteps
from placer.parallelism import Parallelism
from placer.profiler.cost import SideCost
from placer.profiler.steps import StepKind, Steps


def spread_problem(model: ModelSpec, parallel: Parallelism) -> str | None:
    """Why ``model`` cannot be spread like this, its attention heads included, or None."""
    try:
        model.weights_bytes_per_gpu(parallel.attention_tp)
    except BadInputError as error:
        return error.what
    return parallel.problem(model)


def spreads(gpus: int) -> tuple[Parallelism, ...]:
    """Tensor parallelism over ``gpus``, alone and with every size of expert parallelism among them."""
    return tuple(Parallelism(gpus, ep) for ep in range(1, gpus + 1) if gpus % ep == 0)


def grouped_layer_us(hot: SideCost, steps: Steps, groups: int) -> Floats:
    """Time of every layer's experts when GPUs share them out in ``groups``: float [S, L].

    ``hot`` costs one expert on the GPUs that it is cut over. Groups hold experts in order, as SGLang deals them
    out, and wait for the slowest. Every GPU has every token, as attention under tp leaves it, so nothing is sent
    before the experts, and the sum after them is that of tp (sglang/srt/layers/moe: a2a backend none).
    """
    S, L, E = steps.rows.shape
    expert_us = hot.expert_us(steps.rows, steps.tokens).reshape(S, L, groups, E // groups)
    return np.asarray(hot.fixed_us(steps.tokens)[:, None] + expert_us.sum(axis=3).max(axis=2))


class GpuLayers:
    """Layer times of a model whose experts are all on GPUs, each kind and size of step costed once."""

    def __init__(self, hot: SideCost, steps: ComparedSteps, groups: int) -> None:
        self._hot = hot
        self._steps = steps
        self._groups = groups
        self._layers_us: dict[tuple[StepKind, int], Floats] = {}

    def __call__(self, kind: StepKind, size: int) -> LayerTimes:
        """Times of steps of ``size`` tokens."""
        compute_us = self.compute_us(kind, size)
        return LayerTimes(compute_us, np.zeros_like(compute_us), overlapped=True)

    def call_us(self, kind: StepKind, size: int) -> Floats:
        """What of `compute_us` is no expert's: kernels that are called, whatever they read; float [S, 1]."""
        return self._hot.fixed_us(self._steps.of(kind, size).tokens)[:, None]

    def compute_us(self, kind: StepKind, size: int) -> Floats:
        """What GPUs compute of every layer: float [S, L]."""
        if (kind, size) not in self._layers_us:
            self._layers_us[kind, size] = grouped_layer_us(
                self._hot, self._steps.of(kind, size), self._groups
            )
        return self._layers_us[kind, size]
