"""Objectives and targets: plans that weigh latency more, fewer running requests, and what an enumeration finds."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_traces import phased
from test_solve import last_two, routed
from tiny_model import line, tiny_cost, tiny_model

from placer.choosing import Choosing
from placer.errors import InfeasibleError
from placer.hot_bounds import hot_bounds
from placer.level_problems import LevelProblems
from placer.level_room import request_levels
from placer.model.expert_share import expert_share_bytes
from placer.model.spec import ModelSpec
from placer.objective import Objective
from placer.profiler.serving.server import Scheduler
from placer.profiler.trace.selection import selection_counts
from placer.profiler.trace.split import split_requests
from placer.replays import EVALUATION_SEED, EVALUATION_STEPS, SPLIT_SHARES, Replays
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solving import solve
from placer.units import parse_size
from placer.workload import Workload


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def with_room(model: ModelSpec, request: SolveRequest, experts: int) -> SolveRequest:
    """The request with the budget that leaves its largest level room for so many hot experts."""
    whole = 64 * 2**30
    largest = min(
        request_levels(model, replace(request, budget_bytes=whole)), key=lambda each: each.room_experts
    )
    budget_bytes = whole - largest.ledger.unused_bytes + experts * expert_share_bytes(model, 1)
    return replace(request, budget_bytes=budget_bytes)


def alone(
    tiny: ModelSpec, output_tokens: int, *, objective: Objective = Objective.THROUGHPUT, **targets: Any
) -> Solved:
    """One client; prompts of 64 tokens take experts 0 and 1, answers 6 and 7; room for ten hot experts."""
    request = SolveRequest(
        Workload(64, output_tokens, 1, **targets),
        1,
        chunk_tokens=64,
        prefill_from="trace",
        objective=objective,
    )
    return solve(tiny, phased(tiny), tiny_cost(), with_room(tiny, request, 10))


def kinds(answer: Solved) -> tuple[int, int]:
    """Hot experts that prompts take, and that answers take."""
    return int(answer.hot[:, :2].sum()), int(answer.hot[:, 6:].sum())


# An answer's token costs 40 µs outside the experts, 20 per layer for the CPU's call and 110 for every cold expert:
# 120 µs in all when experts 6 and 7 are hot everywhere. A cold expert adds 100 + 64 · 10 = 740 µs to a prompt; the
# first of a layer 623, because two hot ones take 5 + 2 · (2 + 64) = 137 µs where the CPU takes 20.


def test_throughput_and_latency_choose_other_experts_where_prompts_weigh_more(tiny: ModelSpec) -> None:
    # Four output tokens: a hot prompt expert saves 740 / 4 = 185 µs of each, a hot answer expert 110.
    fast = alone(tiny, 4)
    assert kinds(fast) == (8, 2)
    assert fast.prediction.tpot_ms_p95 == pytest.approx(0.120 + 6 * 0.110, rel=0.01)
    quick = alone(tiny, 4, objective=Objective.LATENCY)
    assert kinds(quick)[1] == 8
    assert quick.prediction.tpot_ms_p95 == pytest.approx(0.120, rel=0.01)
    assert quick.objective_us == pytest.approx(120.0, rel=1e-3)
    assert quick.status == "optimal"


def test_a_target_that_only_another_plan_meets(tiny: ModelSpec) -> None:
    # 0.5 ms leave room for three cold answer experts (0.45 ms): five of ten places, and five for prompts.
    kept = alone(tiny, 4, slo_tpot_ms=0.5)
    assert kinds(kept) == (5, 5)
    assert kept.prediction.tpot_ms_p95 == pytest.approx(0.450, rel=0.01)
    assert kept.gap is not None
    assert kept.gap <= 0.005
    assert any("mean TPOT and prompt time" in note for note in kept.notes)
    # Long answers pay for their own experts; a prompt in 2 ms needs six of its eight hot.
    assert kinds(alone(tiny, 32)) == (2, 8)
    kept = alone(tiny, 32, slo_ttft_ms=2.0)
    assert kinds(kept) == (6, 4)
    assert kept.prediction.ttft_ms_p95 is not None
    assert kept.prediction.ttft_ms_p95 <= 2.0


@pytest.mark.parametrize("target_ms", [0.15, 0.6])
def test_the_plan_within_a_target_is_the_best_of_all(tiny: ModelSpec, target_ms: float) -> None:
    kept = alone(tiny, 4, slo_tpot_ms=target_ms)
    free = alone(tiny, 4, slo_tpot_ms=1e6)
    assert kept.objective_us is not None
    assert free.objective_us is not None

    def objective_us(prompt: int, answer: int) -> float:
        """Of so many hot experts of either kind, counted from the plan with eight and two."""
        cold = 8 - prompt
        prompt_us = min(cold, 4) * 623 + max(cold - 4, 0) * 740
        return (free.objective_us or 0.0) + prompt_us / 4 + (2 - answer) * 110

    tried = [(prompt, answer) for prompt in range(9) for answer in range(9) if prompt + answer <= 10]
    within = [pair for pair in tried if 0.120 + 0.110 * (8 - pair[1]) <= target_ms]
    assert kept.objective_us == pytest.approx(min(objective_us(*pair) for pair in within), rel=1e-4)
    assert kinds(kept) == min(within, key=lambda pair: objective_us(*pair))


def four_clients(tiny: ModelSpec, objective: Objective, **targets: Any) -> Solved:
    """Steps that cost nearly the same for one request as for four; any number may run."""
    request = SolveRequest(
        Workload(64, 32, 4, **targets),
        1,
        min_kv_tokens=1024,
        prefill_from="trace",
        objective=objective,
    )
    cost = tiny_cost(cold=line(20.0, 100.0, 30.0), hot=line(5.0, 2.0, 1.0))
    return solve(tiny, routed(tiny, last_two), cost, with_room(tiny, request, 14))


def test_throughput_runs_all_clients_and_latency_one(tiny: ModelSpec) -> None:
    fast = four_clients(tiny, Objective.THROUGHPUT)
    quick = four_clients(tiny, Objective.LATENCY)
    assert fast.level.settings.max_running_requests == 4
    assert quick.level.settings.max_running_requests == 1
    assert quick.prediction.tpot_ms_p95 < fast.prediction.tpot_ms_p95
    assert quick.prediction.output_tokens_per_s < fast.prediction.output_tokens_per_s


def test_goodput_runs_fewer_requests_where_more_miss_the_target(tiny: ModelSpec) -> None:
    fast = four_clients(tiny, Objective.THROUGHPUT)
    quick = four_clients(tiny, Objective.LATENCY)
    between = (fast.prediction.tpot_ms_p95 + quick.prediction.tpot_ms_p95) / 2
    good = four_clients(tiny, Objective.GOODPUT, slo_tpot_ms=between)
    assert good.level.settings.max_running_requests < 4
    assert good.prediction.goodput_tokens_per_s is not None
    assert good.prediction.goodput_tokens_per_s > 0.9 * good.prediction.output_tokens_per_s
    # Without a target that bites, goodput is throughput.
    loose = four_clients(tiny, Objective.GOODPUT, slo_tpot_ms=1e6)
    assert loose.level.settings == fast.level.settings
    assert loose.prediction.goodput_tokens_per_s == pytest.approx(loose.prediction.output_tokens_per_s)


def test_goodput_under_mixed_steps_is_that_of_throughput_where_all_keep_the_targets(tiny: ModelSpec) -> None:
    request = SolveRequest(
        Workload(64, 32, 4, slo_tpot_ms=0.5, slo_ttft_ms=60.0),
        1,
        min_kv_tokens=1024,
        chunk_tokens=64,
        prefill_from="trace",
        scheduler=Scheduler.VLLM,
    )
    fast, good = (
        solve(tiny, phased(tiny), tiny_cost(), with_room(tiny, replace(request, objective=objective), 10))
        for objective in (Objective.THROUGHPUT, Objective.GOODPUT)
    )
    assert fast.prediction.goodput_tokens_per_s == pytest.approx(fast.prediction.output_tokens_per_s)
    assert good.level.settings == fast.level.settings
    assert np.array_equal(good.hot, fast.hot)


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


def test_nothing_that_meets_the_target_is_said_with_by_how_much_and_where(tiny: ModelSpec) -> None:
    with pytest.raises(InfeasibleError) as caught:
        alone(tiny, 4, slo_tpot_ms=0.1)
    assert "--slo-tpot of 0.1 ms (best level reaches 0.12 ms at p95, +20.0%" in caught.value.what
    assert "1 running request, chunk 64, bf16 KV" in caught.value.what
    assert "relax to --slo-tpot 0.12" in caught.value.hint
    assert "Tried in vain: --kv-dtype fp8" in caught.value.hint


FIELDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "--max-running": lambda text: {"max_running": None if text == "auto" else int(text)},
    "--hbm-budget": lambda text: {"budget_bytes": parse_size(text, whole_bytes=80 * 2**30)},
    "--kv-dtype": lambda text: {"kv_dtypes": (text,)},
    "--chunk": lambda text: {"chunk_tokens": None if text == "auto" else int(text)},
}
TRAFFIC: dict[str, Callable[[str], dict[str, Any]]] = {
    "--slo-ttft": lambda text: {"slo_ttft_ms": float(text)},
    "--slo-tpot": lambda text: {"slo_tpot_ms": float(text)},
    "--concurrency": lambda text: {"concurrency": int(text)},
    "--rate": lambda text: {"rate_per_s": float(text)},
}


def advised(request: SolveRequest, hint: str) -> dict[str, SolveRequest]:
    """Each change that a hint says meets the targets, as the request that it makes of ``request``."""
    said = hint.partition("each tried: ")[2] or hint
    changed = {}
    for text in said.partition(". ")[0].split("; "):
        words = dict(re.findall(r"(--[a-z-]+) (\S+?)(?=[ ,]|$)", text.partition(" (")[0]))
        workload = request.workload
        fields: dict[str, Any] = {}
        for flag, value in words.items():
            if flag in TRAFFIC:
                workload = replace(workload, **TRAFFIC[flag](value))
            else:
                fields |= FIELDS[flag](value)
        changed[text] = replace(request, workload=workload, **fields)
    return changed


@pytest.mark.parametrize(
    ("targets", "options", "kinds"),
    [
        ({"slo_ttft_ms": 5.0, "slo_tpot_ms": 0.5}, {}, {"--slo-ttft", "--concurrency", "--hbm-budget"}),
        # Fewer clients than running requests are refused, so both are told.
        ({"slo_tpot_ms": 0.4}, {"max_running": 4}, {"--max-running auto", "--concurrency"}),
        ({"slo_ttft_ms": 6.0, "rate_per_s": 40.0}, {"max_running": 2}, {"--rate"}),
        ({"slo_tpot_ms": 0.119, "rate_per_s": 90.0}, {}, {"--slo-tpot"}),
    ],
    ids=["both", "clients", "rate and TTFT", "rate and TPOT"],
)
def test_every_change_that_is_advised_meets_the_targets(
    tiny: ModelSpec, targets: dict[str, float], options: dict[str, int], kinds: set[str]
) -> None:
    request = SolveRequest(
        Workload(64, 32, 4, **targets),
        1,
        device_bytes=80 * 2**30,
        chunk_tokens=64,
        prefill_from="trace",
        **options,
    )
    request = with_room(tiny, request, 10)

    def solved(changed: SolveRequest) -> Solved:
        return solve(tiny, phased(tiny), tiny_cost(), changed)

    with pytest.raises(InfeasibleError, match="no level meets") as caught:
        solved(request)
    hint = caught.value.hint
    for kind in kinds:
        assert kind in hint.partition("Tried in vain")[0], hint
    for changed in advised(request, hint).values():
        assert changed != request
        solved(changed)
