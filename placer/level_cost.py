"""What a level's steps cost on either side: the bridge from cost model and steps to a placement problem."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placer.hbm import ServerSettings
from placer.model.expert_share import expert_share_bytes
from placer.model.spec import ModelSpec
from placer.objective import OUTPUT_TOKEN, Weighting
from placer.profiler.base import step_base_us
from placer.profiler.cost import CostModel
from placer.profiler.step_load import StepLoad
from placer.profiler.steps import StepKind, Steps
from placer.solvers.problem import FixedCharge, Floats, Mask, PlacementProblem, charged
from placer.workload import Workload

COLD_FIXED_WHEN = FixedCharge.ANY_ACTIVE
COLD_IDLE_RUNS = True
"""sglang-kt 0.7.2 stages, submits and syncs the CPU side in every layer-step (kt_ep_wrapper.apply). Where no cold
expert has rows, whether the layer is all hot or its token went elsewhere, that costs the transfers and a kernel call
that finds every slot masked."""
HOT_FIXED_WHEN = FixedCharge.ANY_MEMBER
"""It skips the GPU part of a layer that holds no hot expert (the same function)."""

_SEVERAL_END = 0.5
"""Requests that end per decode step (R / O) beyond which their prompts share chunks: then a fifth of them do."""


@dataclass(frozen=True)
class StepCosts:
    """Costs of S steps of one kind at one level.

    Attributes
    ----------
    hot_us, cold_us
        float32 [S, L, E] that an expert adds to its side.
    hot_fixed_us, cold_fixed_us
        float64 [S], paid per layer.
    cold_idle_us
        float64 [S], what the cold side of a layer-step takes in which no cold expert has rows.
    heaviest_factor
        float64 [S], weight of the heaviest cold expert in the cost model's max-term (0: sum alone).
    base_us
        Time of a step outside the routed experts.
    extrapolated_share
        Share of steps that ask for more rows per expert than the profile measured.
    kv_token_us
        What a KV token more of the decoding requests' contexts adds to ``base_us``.
    transfer_us
        Copies of a layer to the host and back, part of ``cold_fixed_us`` and ``cold_idle_us``.
    immediate
        bool [S, L, E], experts whose CPU work is not deferred; None where none is. `side_us` takes all at once.
    """

    kind: StepKind
    tokens: int
    hot_us: Floats
    cold_us: Floats
    hot_fixed_us: NDArray[np.float64]
    cold_fixed_us: NDArray[np.float64]
    cold_idle_us: NDArray[np.float64]
    heaviest_factor: NDArray[np.float64]
    base_us: float
    extrapolated_share: float
    kv_token_us: float = 0.0
    transfer_us: float = 0.0
    immediate: NDArray[np.bool_] | None = None

    def layer_us(self, hot: Mask) -> NDArray[np.float64]:
        """Time of every MoE layer of every step under ``hot`` (bool [L, E]): float [S, L]."""
        hot_us, cold_us = self.side_us(hot)
        return np.asarray(np.maximum(hot_us, cold_us))

    def side_us(self, hot: Mask) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Time of the hot and of the cold side of every layer-step: float [S, L] each."""
        hot_sum = np.einsum("sle,le->sl", self.hot_us, hot, dtype=np.float64)
        cold_sum = np.einsum("sle,le->sl", self.cold_us, ~hot, dtype=np.float64)
        if self.heaviest_factor.any():
            heaviest = np.where(hot, 0.0, self.cold_us).max(axis=2)
            cold_sum = np.maximum(cold_sum, self.heaviest_factor[:, None] * heaviest)
        hot_on = charged(HOT_FIXED_WHEN, hot, self.hot_us)
        cold_on = charged(COLD_FIXED_WHEN, ~hot, self.cold_us)
        return (
            hot_sum + self.hot_fixed_us[:, None] * hot_on,
            cold_sum + np.maximum(self.cold_fixed_us[:, None] * cold_on, self.cold_idle_us[:, None]),
        )

    def step_us(self, hot: Mask) -> NDArray[np.float64]:
        """Time of every step, base included: float [S]."""
        return np.asarray(self.base_us + self.layer_us(hot).sum(axis=1))


def step_costs(
    model: ModelSpec, cost: CostModel, steps: Steps, settings: ServerSettings, workload: Workload, tp: int
) -> StepCosts:
    """Cost of ``steps`` at a level. All steps of one kind hold the same number of tokens.

    A mixed step holds a token of every running request of the level; the others are its chunk.
    """
    tokens = int(steps.tokens[0])
    base_us, kv_token_us = base_costs(model, cost, steps.kind, tokens, settings, workload, tp)
    transfer_us = cost.rates.transfer_call_us + cost.rates.transfer_token_us * tokens
    idle_runs = COLD_IDLE_RUNS and not cost.behaviour.skip_idle_cold
    return StepCosts(
        kind=steps.kind,
        tokens=tokens,
        hot_us=cost.hot.expert_us(steps.rows, steps.tokens).astype(np.float32),
        cold_us=cost.cold.expert_us(steps.rows, steps.tokens).astype(np.float32),
        hot_fixed_us=cost.hot.fixed_us(steps.tokens),
        cold_fixed_us=cost.cold.fixed_us(steps.tokens) + transfer_us,
        cold_idle_us=(cost.cold.idle_us(steps.tokens) + transfer_us) * idle_runs,
        heaviest_factor=np.array([cost.cold.regime(int(count)).heaviest_factor for count in steps.tokens]),
        base_us=base_us,
        kv_token_us=kv_token_us,
        transfer_us=transfer_us,
        immediate=steps.immediate,
        extrapolated_share=float(
            np.mean(cost.cold.is_extrapolated(steps.rows, steps.tokens)) if steps.rows.size else 0.0
        ),
    )


def base_costs(
    model: ModelSpec,
    cost: CostModel,
    kind: StepKind,
    tokens: int,
    settings: ServerSettings,
    workload: Workload,
    tp: int,
) -> tuple[float, float]:
    """Time of a step of ``tokens`` tokens outside the routed experts, and what a KV token more adds to it."""
    load = step_load(kind, tokens, settings, workload)

    def base_us(load: StepLoad) -> float:
        if cost.base is not None:
            alone_us = cost.base.step_us(load, kv_dtype=settings.kv_dtype)
        else:
            alone_us = step_base_us(model, cost.rates, load, tp=tp, kv_dtype=settings.kv_dtype)
        return alone_us * cost.base_factor + cost.step_us

    kv_tokens = load.batch * load.context_tokens
    if not kv_tokens:
        return base_us(load), 0.0
    longer = replace(load, context_tokens=2 * load.context_tokens)
    return base_us(load), (base_us(longer) - base_us(load)) / kv_tokens


def step_load(kind: StepKind, tokens: int, settings: ServerSettings, workload: Workload) -> StepLoad:
    """What a step of ``tokens`` tokens holds.

    A token of a prompt sees half of it on average, whatever the chunks: that is P/2; where the prefix cache holds
    the first of its tokens, the others see those and half of the rest.
    """
    batch = {StepKind.DECODE: tokens, StepKind.PREFILL: 0}.get(kind, settings.max_running_requests)
    if batch > tokens:
        raise ValueError(f"a mixed step of {tokens} tokens cannot hold {batch} running requests")
    return StepLoad(
        batch=batch,
        context_tokens=workload.mean_context_tokens,
        chunk_tokens=tokens - batch,
        chunk_context_tokens=workload.prompt_tokens
        - workload.computed_prompt_tokens
        + workload.computed_prompt_tokens // 2,
    )


@dataclass(frozen=True)
class LevelCosts:
    """A level's decode steps and prefill chunks, weighted to microseconds per output token.

    A decode step yields one token of each running request, so it weighs 1 / (R · S_dec); a prompt is paid by O output
    tokens, so each of its chunks weighs 1 / (O · S_pre), and the shorter step with the rest of it as well.
    """

    decode: StepCosts
    prefill: StepCosts | None
    prefill_weight: float
    rest: StepCosts | None = None
    rest_weight: float = 0.0

    def output_token_us(self, hot: Mask) -> float:
        """Mean microseconds per output token under ``hot``, base included."""
        return self.weighted_us(hot, OUTPUT_TOKEN)

    def weighted_us(self, hot: Mask, weighting: Weighting) -> float:
        """Mean time under ``hot`` as ``weighting`` adds it up, base included."""
        return sum(share * float(part.step_us(hot).mean()) for part, share in self.weighted_parts(weighting))

    def weighted_parts(self, weighting: Weighting) -> tuple[tuple[StepCosts, float], ...]:
        """The kinds of steps that ``weighting`` counts, each with the weight of its mean step."""
        parts = [(self.decode, weighting.decode / self.decode.tokens)]
        if self.prefill is not None:
            parts.append((self.prefill, weighting.prefill * self.prefill_weight))
        if self.rest is not None:
            parts.append((self.rest, weighting.prefill * self.rest_weight))
        return tuple((part, share) for part, share in parts if share > 0)


@dataclass(frozen=True)
class PromptSteps:
    """Prefill steps of a prompt of mean length: ``chunks`` of ``chunk_tokens``, and one of ``rest_tokens`` if any."""

    chunk_tokens: int
    chunks: float
    rest_tokens: int


def prompt_steps(settings: ServerSettings, workload: Workload) -> PromptSteps:
    """Steps of the tokens of a prompt that the prefix cache lacks.

    A prompt is computed when a request has ended. Where that is seldom another's is not there to fill up its last
    chunk; where several end in a step, their prompts share chunks.
    """
    computed = workload.computed_prompt_tokens
    chunk = min(settings.chunk_tokens, computed)
    if several_end(settings, workload):
        return PromptSteps(chunk, computed / chunk, 0)
    chunks, rest = divmod(computed, chunk)
    return PromptSteps(chunk, float(chunks), rest)


def several_end(settings: ServerSettings, workload: Workload) -> bool:
    """Whether so many requests end per decode step that those that follow often start together."""
    return settings.max_running_requests > _SEVERAL_END * workload.output_tokens


def level_costs(
    model: ModelSpec,
    cost: CostModel,
    decode: Steps,
    prefill: Steps | None,
    settings: ServerSettings,
    workload: Workload,
    tp: int,
    *,
    rest: Steps | None = None,
) -> LevelCosts:
    """Costs of a level's steps, with the weight of its prefill chunks and of steps with the ``rest`` of a prompt.

    Without those the rest is taken as a share of a chunk.
    """
    decode_costs = step_costs(model, cost, decode, settings, workload, tp)
    if prefill is None:
        return LevelCosts(decode_costs, None, 0.0)
    prefill_costs = step_costs(model, cost, prefill, settings, workload, tp)
    if rest is None:
        chunks = workload.computed_prompt_tokens / prefill_costs.tokens
        return LevelCosts(decode_costs, prefill_costs, chunks / workload.output_tokens)
    return LevelCosts(
        decode_costs,
        prefill_costs,
        workload.computed_prompt_tokens // prefill_costs.tokens / workload.output_tokens,
        step_costs(model, cost, rest, settings, workload, tp),
        1.0 / workload.output_tokens,
    )


def placement_problem(
    model: ModelSpec,
    costs: LevelCosts,
    *,
    room_experts: int,
    tp: int,
    linear_us: Floats | None,
    name: str,
    min_hot: NDArray[np.int64] | None = None,
    max_hot: NDArray[np.int64] | None = None,
    weighting: Weighting = OUTPUT_TOKEN,
) -> PlacementProblem:
    """The level's problem: minimise mean times as ``weighting`` adds them up, over the hot set.

    ``linear_us`` float [L, E] is the sampling correction of `placer.sampling`, or None. ``min_hot`` and ``max_hot``
    int [L] bound the hot experts of each layer.

    The idle cost is paid in every layer-step, so it moves into the constant and off both sides:
    max(h, i + c) = i + max(h - i, c) where c, the cold side beyond it, is never negative.
    """
    L, E = len(model.moe_layers), model.experts
    parts = costs.weighted_parts(weighting)
    weight = np.concatenate([np.full(len(part.hot_us), share / len(part.hot_us)) for part, share in parts])
    share_bytes = expert_share_bytes(model, tp)

    def stacked(field: str) -> NDArray[np.float64]:
        return np.concatenate([np.asarray(getattr(part, field), dtype=np.float64) for part, _ in parts])

    idle_us = stacked("cold_idle_us")
    return PlacementProblem(
        hot_us=stacked("hot_us"),
        cold_us=stacked("cold_us"),
        hot_fixed_us=np.repeat((stacked("hot_fixed_us") - idle_us)[:, None], L, axis=1),
        cold_fixed_us=np.repeat((stacked("cold_fixed_us") - idle_us)[:, None], L, axis=1),
        hot_fixed_when=HOT_FIXED_WHEN,
        cold_fixed_when=COLD_FIXED_WHEN,
        weight=weight,
        expert_bytes=np.full(L, share_bytes, dtype=np.int64),
        budget_bytes=room_experts * share_bytes,
        min_hot=np.zeros(L, dtype=np.int64) if min_hot is None else min_hot,
        max_hot=np.full(L, E, dtype=np.int64) if max_hot is None else max_hot,
        linear_us=np.zeros((L, E)) if linear_us is None else np.asarray(linear_us, dtype=np.float64),
        constant_us=sum(part.base_us * share for part, share in parts) + L * float(weight @ idle_us),
        name=name,
        heaviest_factor=stacked("heaviest_factor"),
    )
