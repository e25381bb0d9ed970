"""Planning before any trace exists: KV and an equal number of hot experts per layer, under uniform routing."""

import time
from dataclasses import replace

import numpy as np

from placer.hot_bounds import hot_bounds
from placer.level_cost import level_costs
from placer.level_predictions import level_predictions
from placer.level_room import requested_levels
from placer.model.spec import ModelSpec
from placer.prediction import predict
from placer.profiler.cost import CostModel
from placer.profiler.replay import replay_decode, replay_prefill
from placer.profiler.trace.trace import Phase, TokenTrace, TraceHeader
from placer.replays import Replays
from placer.sampling import decode_steps, prefill_steps
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solvers.problem import Mask
from placer.targets import meets_targets, targets_missed
from placer.whole_layers import whole_layers

_REQUESTS = 64
_REQUEST_TOKENS = 128
_COUNTS_TRIED = 9

UNTRACED_NOTES = (
    "no trace: routing is assumed uniform, so which experts are hot is not known and the first N of each layer "
    "are taken, as the runtime's default does",
    "with real routing the cold side usually serves fewer selections than predicted here; record a trace "
    "(export --record) and solve again",
)


def uniform_trace(model: ModelSpec, seed: int) -> TokenTrace:
    """Tokens that choose top-k distinct experts uniformly in every layer: T = 8,192 in 64 requests."""
    random = np.random.default_rng(seed)
    T, L, E = _REQUESTS * _REQUEST_TOKENS, len(model.moe_layers), model.experts
    ids = np.empty((T, L, model.top_k), dtype=np.uint16)
    for layer in range(L):
        # The k smallest of E random keys are a uniform draw without replacement.
        keys = random.random((T, E), dtype=np.float32)
        ids[:, layer] = np.argpartition(keys, model.top_k - 1, axis=1)[:, : model.top_k]
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


def solve_untraced(model: ModelSpec, cost: CostModel, request: SolveRequest) -> Solved:
    """Choose settings and an equal N per layer for ``model``, under uniform routing.

    Raises
    ------
    InfeasibleError
        When nothing fits the budget, or no level meets the latency targets.
    """
    started = time.monotonic()
    cost = replace(cost, behaviour=request.behaviour)
    workload, L = request.workload, len(model.moe_layers)
    limits = hot_bounds(model, {}, least=request.least_hot, most=request.most_hot)
    grid = requested_levels(model, request)
    trace = uniform_trace(model, request.seed)
    found = []
    for level in grid:
        settings = level.settings
        chunk = min(settings.chunk_tokens, workload.computed_prompt_tokens)
        running = settings.max_running_requests
        costs = level_costs(
            model,
            cost,
            replay_decode(trace, running, decode_steps(running), seed=request.seed),
            replay_prefill(trace, chunk, prefill_steps(chunk), seed=request.seed, from_decode=True),
            settings,
            workload,
            request.tp,
        )
        most = min(level.room_experts // L, int(limits.most.min()))
        tried = sorted(set(np.linspace(request.least_hot, most, _COUNTS_TRIED).astype(int).tolist()))
        times_us = [costs.output_token_us(first_experts(model, per_layer)) for per_layer in tried]
        fastest = int(np.argmin(times_us))
        found.append((times_us[fastest], level, tried[fastest], costs))
    missed = []
    for _, level, per_layer, costs in sorted(found, key=lambda entry: entry[0]):
        hot = first_experts(model, per_layer)
        cold_share = 1.0 - per_layer / model.experts
        figures = predict(costs, hot, cold_share, level.settings, workload, request.seed)
        if meets_targets(workload, figures):
            break
        missed.append(figures)
    else:
        raise targets_missed(workload, missed)
    (figures,) = level_predictions(
        model,
        cost,
        Replays(trace, request.seed, "decode"),
        costs,
        level,
        {"equal_per_layer": hot},
        {"equal_per_layer": cold_share},
        request,
        banded=("equal_per_layer",),
    ).values()
    return Solved(
        level=level,
        hot=hot,
        chosen="equal_per_layer",
        priority=np.broadcast_to(-np.arange(model.experts, dtype=np.float64), hot.shape),
        solver="equal_per_layer",
        status="untraced",
        objective_us=costs.output_token_us(hot),
        bound_us=None,
        gap=None,
        seconds=time.monotonic() - started,
        levels_solved=len(grid),
        levels_total=len(grid),
        prediction=figures,
        baselines={},
        baseline_masks={},
        coverage=None,
        uniform_null=float(hot.mean()),
        extrapolated_share=costs.decode.extrapolated_share,
        notes=UNTRACED_NOTES,
        whole_layers=whole_layers(costs.decode),
    )
