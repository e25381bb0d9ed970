"""Times of a server's steps of any size where GPUs compute every expert, as a serving simulation asks for them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from placer.hbm import ServerSettings
from placer.kv_pool import sglang_page_tokens
from placer.level_cost import base_costs, prompt_steps
from placer.level_steps import LevelStepTimes, SizeTimes, quantiles
from placer.model.spec import ModelSpec
from placer.modes.layer_times import Floats, LayerTimes
from placer.profiler.cost import CostModel
from placer.profiler.factor import UNCALIBRATED, Factors
from placer.profiler.serving.graph_batch import decode_graphs, padded_batch
from placer.profiler.serving.server import Scheduler
from placer.profiler.steps import StepKind
from placer.workload import Workload

LayersOf = Callable[[StepKind, int], LayerTimes]
"""Layer times by kind and size of a step."""


class ModeTimes:
    """Step times of ``layers_of`` on a server whose attention is cut over ``tp`` GPUs.

    ``cost`` says what a step takes outside its experts.
    """

    def __init__(
        self,
        model: ModelSpec,
        cost: CostModel,
        layers_of: LayersOf,
        workload: Workload,
        tp: int,
        scheduler: Scheduler,
    ) -> None:
        self._model = model
        self._cost = cost
        self._layers_of = layers_of
        self._workload = workload
        self._tp = tp
        self._scheduler = scheduler
        self._known_us: dict[tuple[StepKind, int, Factors], Floats] = {}

    def step_times(self, settings: ServerSettings, factors: Factors, seed: int) -> LevelStepTimes:
        """What a simulation of a server of ``settings`` asks for."""
        return LevelStepTimes(lambda kind, size: self._times(kind, size, settings, factors), seed)

    @property
    def page_tokens(self) -> int:
        """Tokens of a page of the KV pool that SGLang gives the model."""
        return sglang_page_tokens(self._model)

    def decode_step_us(self, settings: ServerSettings, running: int) -> float:
        """Mean decode step of ``running`` requests at their mean context."""
        times = self._times(StepKind.DECODE, running, settings, UNCALIBRATED)
        held = running * self._workload.mean_context_tokens
        return times.base_us + times.kv_token_us * held + float(times.layers_us.mean())

    def prefill_us(self, settings: ServerSettings) -> float:
        """Mean time of one prompt, in chunks where it is longer."""
        if self._scheduler is Scheduler.VLLM:
            # Every other request takes a token of the step.
            room = settings.chunk_tokens - settings.max_running_requests + 1
            settings = replace(settings, chunk_tokens=max(1, room))
        prompt = prompt_steps(settings, self._workload)

        def step_us(size: int) -> float:
            times = self._times(StepKind.PREFILL, size, settings, UNCALIBRATED)
            return times.base_us + float(times.layers_us.mean())

        rest_us = step_us(prompt.rest_tokens) if prompt.rest_tokens else 0.0
        return prompt.chunks * step_us(prompt.chunk_tokens) + rest_us

    def output_token_us(self, settings: ServerSettings) -> float:
        """Mean microseconds per output token, with the request's share of its prompt."""
        running = settings.max_running_requests
        decode_us = self.decode_step_us(settings, running) / running
        return decode_us + self.prefill_us(settings) / self._workload.output_tokens

    def _times(self, kind: StepKind, size: int, settings: ServerSettings, factors: Factors) -> SizeTimes:
        if kind is StepKind.DECODE:
            # Steps run in the next larger CUDA graph.
            graphs = decode_graphs(self._scheduler, settings.max_running_requests, settings.chunk_tokens)
            tokens = batch = padded_batch(size, graphs)
            layers_us = self._layers_us(kind, tokens, factors)
        else:
            tokens, batch = size, 0
            layers_us = self._chunk_us(size, settings.chunk_tokens, factors)
        base_us, kv_token_us = base_costs(
            self._model, self._cost, kind, tokens, settings, self._workload, self._tp
        )
        alone_us = base_us - kv_token_us * batch * self._workload.mean_context_tokens
        return SizeTimes(layers_us, factors.base * alone_us + factors.step_us, factors.base * kv_token_us)

    def _layers_us(self, kind: StepKind, size: int, factors: Factors) -> Floats:
        """MoE layers of steps of a replayed size, each costed once: float [S], of chunks their quantiles."""
        if (kind, size, factors) not in self._known_us:
            layers_us = self._layers_of(kind, size).step_us(factors)
            self._known_us[kind, size, factors] = (
                quantiles(layers_us) if kind is StepKind.PREFILL else layers_us
            )
        return self._known_us[kind, size, factors]

    def _chunk_us(self, size: int, chunk_tokens: int, factors: Factors) -> Floats:
        """MoE layers of chunks of ``size`` tokens, between those of the replayed sizes around it: float [S]."""
        knots = chunk_knots(chunk_tokens)
        place = min(int(np.searchsorted(knots, size)), len(knots) - 1)
        above, below = knots[place], knots[max(0, place - 1)]
        upper = self._layers_us(StepKind.PREFILL, above, factors)
        if above <= size or above == below:
            return upper
        lower = self._layers_us(StepKind.PREFILL, below, factors)
        share = (size - below) / (above - below)
        return (1 - share) * lower + share * upper


def chunk_knots(chunk_tokens: int) -> tuple[int, ...]:
    """Sizes of chunks that are replayed: powers of four, and the largest."""
    powers = {1 << exponent for exponent in range(0, chunk_tokens.bit_length(), 2)}
    return tuple(sorted({*powers, chunk_tokens}))
