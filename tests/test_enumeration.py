"""Solves against every placement of a small model, at every level."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from roomy_requests import with_room
from test_solve import routed
from tiny_model import tiny_cost, tiny_model

from placer.choosing import Choosing
from placer.hot_bounds import hot_bounds
from placer.level_problems import LevelProblems
from placer.level_room import request_levels
from placer.objective import Objective
from placer.profiler.trace.selection import selection_counts
from placer.profiler.trace.split import split_requests
from placer.replays import EVALUATION_SEED, EVALUATION_STEPS, SPLIT_SHARES, Replays
from placer.solve_request import SolveRequest
from placer.solving import solve
from placer.workload import Workload


def test_no_objective_is_beaten_by_any_placement_at_any_level(tmp_path: Path) -> None:
    # One layer of eight experts with room for three: 93 placements at each of two levels.
    model = tiny_model(tmp_path, num_hidden_layers=1)
    trace = routed(
        model, lambda random, _: np.argsort(random.gumbel(size=8) + np.arange(8) / 2)[-2:].tolist()
    )
    plain = SolveRequest(
        Workload(64, 32, 2),
        1,
        chunk_tokens=64,
        min_kv_tokens=512,
        prefill_from="trace",
        gap=0.001,
    )
    plain = with_room(model, plain, 3)
    parts = split_requests(trace, SPLIT_SHARES, seed=0)
    every = [np.isin(np.arange(8), hot)[None] for count in range(4) for hot in combinations(range(8), count)]
    assert len(every) == 93

    def tried(request: SolveRequest) -> list[tuple[float, Any]]:
        problems = LevelProblems(
            model,
            tiny_cost(),
            request,
            hot_bounds(model, {}, least=0, most=None),
            Replays(parts[0], 0, "trace"),
            selection_counts(parts[0]),
        )
        steps = Replays(parts[1], EVALUATION_SEED, "trace", step_factor=EVALUATION_STEPS)
        choosing = Choosing(model, tiny_cost(), request, steps, parts[1])
        found = []
        for level in request_levels(model, request):
            problem = problems.problem(level)
            for hot in every:
                if problem.is_feasible(hot):
                    found.append((problem.objective_us(hot), choosing.figures(level, hot)))
        return found

    everything = tried(plain)
    times = [figures.tpot_ms_p95 for _, figures in everything]
    target = float(np.quantile(times, 0.1))
    request = replace(plain, workload=replace(plain.workload, slo_tpot_ms=target))
    within = min(us for us, figures in everything if figures.tpot_ms_p95 <= target)
    kept = solve(model, trace, tiny_cost(), request)
    assert kept.objective_us is not None
    assert kept.bound_us is not None
    assert kept.objective_us <= 1.01 * within
    assert kept.bound_us <= within * (1 + 1e-9)
    quick = solve(model, trace, tiny_cost(), replace(plain, objective=Objective.LATENCY))
    assert quick.bound_us is not None
    assert quick.bound_us <= 1e3 * min(times)
