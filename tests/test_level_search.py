"""Levels of a grid: those that cannot be the best end early, and neither answer nor bound suffers."""

from dataclasses import replace
from pathlib import Path

import pytest
from roomy_requests import with_room
from test_solve import last_two, routed
from tiny_model import line, tiny_cost, tiny_model

from placer.hot_bounds import hot_bounds
from placer.level_problems import LevelProblems
from placer.level_room import request_levels
from placer.level_search import LevelSearch
from placer.profiler.trace.selection import selection_counts
from placer.replays import Replays
from placer.solve_request import SolveRequest
from placer.workload import Workload


def search(folder: Path, request: SolveRequest) -> LevelSearch:
    """Steps cost nearly the same for one request as for eight: fewer running requests cost more per token."""
    model = tiny_model(folder)
    trace = routed(model, last_two)
    problems = LevelProblems(
        model,
        tiny_cost(cold=line(20.0, 100.0, 30.0), hot=line(5.0, 2.0, 1.0)),
        with_room(model, request, 14),
        hot_bounds(model, {}, least=0, most=None),
        Replays(trace, 0, "trace"),
        selection_counts(trace),
    )
    return LevelSearch(problems, lambda _level, _hot: True, lambda _text, _share: None)


REQUEST = SolveRequest(Workload(64, 32, 8), 1, min_kv_tokens=1024, prefill_from="trace", gap=0.001)


def test_cutting_levels_off_changes_neither_the_best_plan_nor_its_bound(tmp_path: Path) -> None:
    # With the frontier every level's own best plan is asked for, so none is cut off.
    cut, whole = search(tmp_path, REQUEST), search(tmp_path, replace(REQUEST, frontier=True))
    grid = request_levels(cut.problems.model, cut.problems.request)
    assert len(grid) > 4
    best, *others = cut.solved(grid)
    whole_best, *_ = whole.solved(grid)
    assert best.level == whole_best.level
    assert best.objective_us() == pytest.approx(whole_best.objective_us(), rel=1e-3)
    bound_us = min(cut.bounds.values())
    assert bound_us <= whole_best.objective_us() * (1 + 1e-9)
    assert bound_us >= best.objective_us() * (1 - 2e-3)
    # No level's bound is above what the level can do.
    for entry in whole.solved(grid):
        assert cut.bounds[entry.level.settings] <= entry.objective_us() * (1 + 1e-9)
    assert len(others) == len(grid) - 1


def test_a_plan_that_misses_the_targets_cuts_no_level_off(tmp_path: Path) -> None:
    missing = search(tmp_path, REQUEST)
    missing.serves = lambda _level, _hot: False
    grid = request_levels(missing.problems.model, missing.problems.request)
    first, *others = missing.problems.promising_first(grid)
    solved = {entry.level.settings: entry for entry in missing.solved(grid)}
    assert solved[first.settings].solution.gap is not None
    for level in others:
        entry = solved[level.settings]
        # Solved to 2 %, or ruled out by the best plan in the end.
        best_us = min(each.objective_us() for each in solved.values())
        assert (entry.solution.gap or 0.0) <= 0.02 or missing.bounds[level.settings] >= best_us
