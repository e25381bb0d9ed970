"""Planning before any trace exists: KV and an equal number of hot experts per layer, under uniform routing."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from placer.choosing import Candidate, Choosing
from placer.errors import BadInputError, InfeasibleError
from placer.first_experts import FirstExperts, Floats
from placer.hbm import ServerSettings
from placer.hot_bounds import hot_bounds
from placer.level import Level
from placer.level_predictions import level_predictions
from placer.level_room import request_levels, without_host
from placer.model.spec import ModelSpec
from placer.objective import Objective, Weighting, limits_of, weighed
from placer.prediction import Prediction
from placer.profiler.cost import CostModel
from placer.profiler.trace.trace import Phase, TokenTrace, TraceHeader
from placer.replays import Replays
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solvers.problem import Mask
from placer.target_advice import target_advice
from placer.target_floor import below_floor
from placer.targets import targets_missed
from placer.whole_layers import whole_layers

_REQUESTS = 64
_REQUEST_TOKENS = 128
_COUNTS_TRIED = 9
_ID_BITS, _ID_MASK = np.uint64(16), np.uint64(0xFFFF)

UNTRACED_NOTES = (
    "no trace: routing is assumed uniform, so which experts are hot is not known and the first N of each layer "
    "are taken, as the runtime's default does",
    "with real routing the cold side usually serves fewer selections than predicted here; record a trace "
    "(placer trace record, or an export for sglang-kt with --record) and solve again",
)


@lru_cache(maxsize=1)
def uniform_trace(model: ModelSpec, seed: int) -> TokenTrace:
    """Tokens that choose top-k distinct experts uniformly in every layer: T = 8,192 in 64 requests."""
    random = np.random.default_rng(seed)
    T, L, E = _REQUESTS * _REQUEST_TOKENS, len(model.moe_layers), model.experts
    ids = np.empty((T, L, model.top_k), dtype=np.uint16)
    experts = np.arange(E, dtype=np.uint64)
    for layer in range(L):
        # The k smallest of E random keys are a uniform draw without replacement. Floats of one sign are ordered as
        # their bits are; with the expert's number below them, plain numbers are parted, several times faster.
        keys = random.random((T, E), dtype=np.float32).view(np.uint32).astype(np.uint64) << _ID_BITS | experts
        keys.partition(model.top_k - 1, axis=1)
        ids[:, layer] = keys[:, : model.top_k] & _ID_MASK
    header = TraceHeader(model.name, model.moe_layers, E, model.top_k, "none: uniform routing assumed")
    return TokenTrace(
        header=header,
        topk_ids=ids,
        request=np.repeat(np.arange(_REQUESTS, dtype=np.int32), _REQUEST_TOKENS),
        position=np.tile(np.arange(_REQUEST_TOKENS, dtype=np.int32), _REQUESTS),
        phase=np.full(T, Phase.DECODE, dtype=np.uint8),
    )


def first_experts(model: ModelSpec, per_layer: int) -> Mask:
    """The first ``per_layer`` experts of every layer: bool [L, E]."""
    hot = np.zeros((len(model.moe_layers), model.experts), dtype=bool)
    hot[:, :per_layer] = True
    return hot


@dataclass(frozen=True)
class _Plan:
    """The first ``per_layer`` experts of every layer (``hot``: bool [L, E]), at a level."""

    level: Level
    per_layer: int
    hot: Mask
    objective_us: float


@dataclass(frozen=True)
class _Uniform:
    """Uniform routing replayed for a model, and what its steps cost."""

    model: ModelSpec
    cost: CostModel
    trace: TokenTrace
    replays: Replays

    def choosing(self, request: SolveRequest) -> Choosing:
        """Plans of ``request``, simulated on the same steps as the figures that are printed."""
        return Choosing(self.model, self.cost, request, self.replays, self.trace)

    def plans(self, request: SolveRequest) -> list[_Plan]:
        """By objective: of every level the best count for the objective, and the best for each latency target."""
        workload, L = request.workload, len(self.model.moe_layers)
        limits = hot_bounds(self.model, {}, least=request.least_hot, most=request.most_hot)
        first = FirstExperts(self.model, self.cost, self.replays)
        plans = []
        for level in request_levels(self.model, request):
            running = level.settings.max_running_requests
            most = min(level.room_experts // L, int(limits.most.min()))
            counts = sorted(set(np.linspace(request.least_hot, most, _COUNTS_TRIED).astype(int).tolist()))

            def by_count_us(weighting: Weighting, settings: ServerSettings = level.settings) -> Floats:
                return first.weighted_us(settings, workload, request.tp, weighting)

            objective_us = by_count_us(weighed(request.objective, running))
            targets = limits_of(workload, running, prompts_known=True)
            weighed_us = (objective_us, *(by_count_us(limit.weighting) for limit in targets))
            found = {counts[int(np.argmin(times_us[counts]))] for times_us in weighed_us}
            plans += [
                _Plan(level, count, first_experts(self.model, count), float(objective_us[count]))
                for count in sorted(found)
            ]
        return sorted(plans, key=lambda plan: plan.objective_us)


def _best(plans: Sequence[_Plan], choosing: Choosing, objective: Objective) -> _Plan | None:
    """The best of ``plans`` that serves, if any does."""
    best: tuple[_Plan, Candidate] | None = None
    for plan in plans:
        if not choosing.serves(plan.level, plan.hot):
            continue
        if objective is Objective.THROUGHPUT:
            return plan
        candidate = Candidate(choosing.figures(plan.level, plan.hot), plan.objective_us)
        if best is None or candidate.better_than(best[1], objective):
            best = plan, candidate
    return None if best is None else best[0]


def solve_untraced(
    model: ModelSpec,
    cost: CostModel,
    request: SolveRequest,
    progress: Callable[[str, float], None] = lambda _text, _share: None,
) -> Solved:
    """Choose settings and an equal N per layer for ``model``, under uniform routing.

    Raises
    ------
    InfeasibleError
        When nothing fits the budget, or no level meets the latency targets.
    """
    started = time.monotonic()
    request = without_host(model, request)
    request.behaviour.check(model.top_k)
    cost = replace(cost, behaviour=request.behaviour)
    trace = uniform_trace(model, request.seed)
    uniform = _Uniform(model, cost, trace, Replays(trace, request.seed, "decode"))
    plans, choosing = uniform.plans(request), uniform.choosing(request)
    best = _best(plans, choosing, request.objective)
    if best is None:

        def check(changed: SolveRequest) -> Prediction | None:
            tried = uniform.choosing(changed)
            try:
                found = _best(uniform.plans(changed), tried, changed.objective)
            except (BadInputError, InfeasibleError):
                return None
            return None if found is None else tried.figures(found.level, found.hot)

        advice = target_advice(
            request,
            choosing.reached,
            check,
            lambda text: progress(text, 0.9),
            out_of_reach=below_floor(model, cost, request),
        )
        goodput = request.objective is Objective.GOODPUT
        raise targets_missed(request.workload, choosing.reached, advice, goodput=goodput)
    level, hot, costs = best.level, best.hot, choosing.costs(best.level)
    (figures,) = level_predictions(
        model,
        cost,
        uniform.replays,
        costs,
        level,
        {"equal_per_layer": hot},
        {"equal_per_layer": 1.0 - best.per_layer / model.experts},
        request,
        banded=("equal_per_layer",),
    ).values()
    levels = len({plan.level.settings for plan in plans})
    return Solved(
        level=level,
        hot=hot,
        chosen="equal_per_layer",
        priority=np.broadcast_to(-np.arange(model.experts, dtype=np.float64), hot.shape),
        solver="equal_per_layer",
        status="untraced",
        objective_us=best.objective_us,
        bound_us=None,
        gap=None,
        seconds=time.monotonic() - started,
        levels_solved=levels,
        levels_total=levels,
        objective=request.objective,
        prediction=figures,
        baselines={},
        baseline_masks={},
        coverage=None,
        uniform_null=float(hot.mean()),
        extrapolated_share=costs.decode.extrapolated_share,
        notes=UNTRACED_NOTES,
        whole_layers=whole_layers(costs.decode),
    )
