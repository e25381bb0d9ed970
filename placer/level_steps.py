"""Steps of every size that a server of a level runs, under several placements: replayed where they are asked for."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placer.hbm import ServerSettings
from placer.kv_pool import sglang_page_tokens
from placer.level_cost import LevelCosts, StepCosts, base_costs, step_costs
from placer.model.spec import ModelSpec
from placer.profiler.cost import CostModel
from placer.profiler.factor import UNCALIBRATED, Factors
from placer.profiler.serving.graph_batch import decode_graphs, padded_batch
from placer.profiler.serving.server import Scheduler
from placer.profiler.steps import StepKind
from placer.replays import Replays
from placer.solvers.problem import Mask
from placer.step_parts import StepParts, step_parts
from placer.workload import Workload

Floats = NDArray[np.float64]
DECODE_STEPS, PREFILL_STEPS = 48, 8
"""Steps replayed at a size."""
_MOST_CHUNK_TOKENS = 32_768
_QUANTILES = 64
_BASE_TOKENS = 64
"""Chunks between multiples of this lie on a line in what surrounds the experts."""


@dataclass(frozen=True)
class SizeTimes:
    """Times of steps of one size: layers_us (float [S]) + base_us + kv_token_us for every KV token held."""

    layers_us: Floats
    base_us: float
    kv_token_us: float


class LevelSteps:
    """Steps at a level, by kind and size, under each of ``masks`` (bool [L, E] by name).

    Rows are replayed at a few sizes (powers of two, and either side of each border between the kernels' regimes)
    and what the experts take is interpolated between equal quantiles of sizes in the same regime; base, padding to
    CUDA graphs and regime are those of each size itself.
    """

    def __init__(
        self,
        model: ModelSpec,
        cost: CostModel,
        replays: Replays,
        settings: ServerSettings,
        workload: Workload,
        tp: int,
        masks: Mapping[str, Mask],
        scheduler: Scheduler,
    ) -> None:
        self._model = model
        self._cost = cost
        self._replays = replays
        self._settings = settings
        self._workload = workload
        self._tp = tp
        self._masks = masks
        self._prompts_are_free = False
        self._graphs = decode_graphs(scheduler, settings.max_running_requests, settings.chunk_tokens)
        self._costs: dict[tuple[StepKind, int], StepCosts] = {}
        self._parts: dict[tuple[StepKind, int], dict[str, StepParts]] = {}
        self._bases: dict[tuple[StepKind, int], tuple[float, float]] = {}
        self._known_quantiles: dict[tuple[StepKind, int, str, Factors], Floats] = {}
        self._sizes = {
            StepKind.DECODE: self._knots(StepKind.DECODE, settings.max_running_requests),
            StepKind.PREFILL: self._knots(StepKind.PREFILL, settings.chunk_tokens),
        }

    @property
    def page_tokens(self) -> int:
        """Tokens of a page of the KV pool that SGLang gives the model."""
        return sglang_page_tokens(self._model)

    def known(self, costs: LevelCosts) -> None:
        """Take the level's own steps for their sizes; where they hold no prompts, prompts take no time."""
        if not self._cost.behaviour.deferred_experts:
            self._keep(costs.decode)
        self._prompts_are_free = costs.prefill is None
        for prompts in (costs.prefill, costs.rest):
            if prompts is not None:
                self._keep(prompts)

    def under(self, masks: Mapping[str, Mask]) -> "LevelSteps":
        """The same steps under other placements; what either replays the other knows."""
        other = copy.copy(self)
        other._masks, other._parts, other._known_quantiles = masks, {}, {}
        return other

    def parts(self, kind: StepKind, size: int) -> dict[str, StepParts]:
        """Replayed steps of ``size`` requests, or chunks of ``size`` tokens, by placement."""
        if (kind, size) not in self._parts:
            costs = self._costs_at(kind, size)
            batch = costs.tokens if kind is StepKind.DECODE else 0
            context = self._workload.mean_context_tokens
            self._parts[kind, size] = {
                name: step_parts(self._model, costs, hot, batch=batch, context_tokens=context)
                for name, hot in self._masks.items()
            }
        return self._parts[kind, size]

    def _costs_at(self, kind: StepKind, size: int) -> StepCosts:
        """What steps of ``size`` cost, whatever the placement."""
        if (kind, size) not in self._costs:
            if kind is StepKind.DECODE:
                deferred = self._cost.behaviour.deferred_experts
                steps = self._replays.sample(kind, size, DECODE_STEPS, deferred_experts=deferred)
                padded = np.full_like(steps.tokens, padded_batch(size, self._graphs))
                steps = replace(steps, tokens=padded)
            else:
                count = max(1, min(PREFILL_STEPS, _MOST_CHUNK_TOKENS // size))
                steps = self._replays.sample(kind, size, count)
            self._costs[kind, size] = step_costs(
                self._model, self._cost, steps, self._settings, self._workload, self._tp
            )
        return self._costs[kind, size]

    def times(self, kind: StepKind, size: int, name: str, factors: Factors) -> SizeTimes:
        """Steps of any size under the placement ``name``."""
        if kind is StepKind.PREFILL and self._prompts_are_free:
            return SizeTimes(np.zeros(1), 0.0, 0.0)
        below, above, share = self._neighbours(kind, size)
        if below == above:
            layers_us = self._layers_us(kind, above, name, factors)
        else:
            lower, upper = (self._quantiles(kind, knot, name, factors) for knot in (below, above))
            layers_us = (1 - share) * lower + share * upper
        base_us, kv_token_us = self._base(kind, size)
        return SizeTimes(layers_us, factors.base * base_us + factors.step_us, factors.base * kv_token_us)

    def step_times(self, name: str, seed: int, factors: Factors = UNCALIBRATED) -> "LevelStepTimes":
        """What a simulation asks for."""
        return LevelStepTimes(lambda kind, size: self.times(kind, size, name, factors), seed)

    def _layers_us(self, kind: StepKind, size: int, name: str, factors: Factors) -> Floats:
        return np.asarray(self.parts(kind, size)[name].layers_us(factors).sum(axis=1))

    def _quantiles(self, kind: StepKind, size: int, name: str, factors: Factors) -> Floats:
        """`quantiles` of a replayed size's times."""
        key = kind, size, name, factors
        if key not in self._known_quantiles:
            self._known_quantiles[key] = quantiles(self._layers_us(kind, size, name, factors))
        return self._known_quantiles[key]

    def _keep(self, costs: StepCosts) -> None:
        self._costs[costs.kind, costs.tokens] = costs
        self._sizes[costs.kind] = tuple(sorted({*self._sizes[costs.kind], costs.tokens}))

    def _base(self, kind: StepKind, size: int) -> tuple[float, float]:
        """Time of a step of ``size`` outside the experts without KV, and by KV token held."""
        if kind is StepKind.DECODE:
            return self._base_at(kind, padded_batch(size, self._graphs))
        low = size // _BASE_TOKENS * _BASE_TOKENS
        if not low or size == low:
            return self._base_at(kind, size)
        share = (size - low) / _BASE_TOKENS
        below, above = (self._base_at(kind, tokens)[0] for tokens in (low, low + _BASE_TOKENS))
        return (1 - share) * below + share * above, 0.0

    def _base_at(self, kind: StepKind, tokens: int) -> tuple[float, float]:
        if (kind, tokens) not in self._bases:
            base_us, kv_token_us = base_costs(
                self._model, self._cost, kind, tokens, self._settings, self._workload, self._tp
            )
            batch = tokens if kind is StepKind.DECODE else 0
            held_us = kv_token_us * batch * self._workload.mean_context_tokens
            self._bases[kind, tokens] = base_us - held_us, kv_token_us
        return self._bases[kind, tokens]

    def _regime(self, kind: StepKind, size: int) -> tuple[int, int]:
        """Which regimes a call of a step of ``size`` falls in, by where they start."""
        tokens = padded_batch(size, self._graphs) if kind is StepKind.DECODE else size
        return self._cost.cold.regime(tokens).min_tokens, self._cost.hot.regime(tokens).min_tokens

    def _knots(self, kind: StepKind, most: int) -> tuple[int, ...]:
        """Sizes to replay: powers of two (of four for chunks), the ends, and either side of each border."""
        exponents = range(0, most.bit_length(), 1 if kind is StepKind.DECODE else 2)
        found = {1, most, *(1 << exponent for exponent in exponents if 1 << exponent <= most)}
        for side in (self._cost.cold, self._cost.hot):
            for border in (regime.max_tokens for regime in side.regimes):
                if border is not None and border < most:
                    last = max((g for g in self._graphs if g <= border), default=border)
                    last = last if kind is StepKind.DECODE else border
                    found |= {last, last + 1}
        return tuple(sorted(found))

    def _neighbours(self, kind: StepKind, size: int) -> tuple[int, int, float]:
        """The replayed sizes of the same regime around ``size``, and how far it lies between them."""
        sizes = self._sizes[kind]
        place = int(np.searchsorted(sizes, size))
        if place == len(sizes):
            return sizes[-1], sizes[-1], 1.0
        above = sizes[place]
        below = sizes[max(0, place - 1)]
        if above == size or self._regime(kind, below) != self._regime(kind, above):
            return above, above, 1.0
        return below, above, (size - below) / (above - below)


class LevelStepTimes:
    """Step times drawn from the replayed steps of each size (a `StepTimes`)."""

    def __init__(self, times: Callable[[StepKind, int], SizeTimes], seed: int) -> None:
        self._times = times
        self._known: dict[tuple[StepKind, int], SizeTimes] = {}
        self._random = np.random.default_rng(seed)

    def decode_us(self, requests: int, kv_tokens: int, steps: int) -> Floats:
        """Times of ``steps`` draws; the KV that is read grows by one token per request and step."""
        times = self._of(StepKind.DECODE, requests)
        drawn = times.layers_us[self._random.integers(times.layers_us.size, size=steps)]
        held = kv_tokens + requests * np.arange(1, steps + 1)
        return np.asarray(drawn + times.base_us + times.kv_token_us * held)

    def prefill_us(self, requests: int, prompt_tokens: int, kv_tokens: int) -> float:
        """One draw at all tokens of the step, and the KV of the requests that decode in it."""
        times = self._of(StepKind.PREFILL, requests + prompt_tokens)
        drawn = float(times.layers_us[int(self._random.integers(times.layers_us.size))])
        read_us = self._of(StepKind.DECODE, requests).kv_token_us * kv_tokens if requests else 0.0
        return drawn + times.base_us + read_us

    def _of(self, kind: StepKind, size: int) -> SizeTimes:
        if (kind, size) not in self._known:
            self._known[kind, size] = self._times(kind, size)
        return self._known[kind, size]


def quantiles(layers_us: Floats) -> Floats:
    """`_QUANTILES` quantiles of a sample, ascending."""
    return np.asarray(np.quantile(layers_us, (np.arange(_QUANTILES) + 0.5) / _QUANTILES))
