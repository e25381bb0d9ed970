"""Running requests by objective: all for throughput, one for latency, as many as keep the target for goodput."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from roomy_requests import with_room
from small_traces import phased
from test_solve import last_two, routed
from tiny_model import line, tiny_cost, tiny_model

from placer.model.spec import ModelSpec
from placer.objective import Objective
from placer.profiler.serving.server import Scheduler
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solving import solve
from placer.workload import Workload


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


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


@pytest.fixture(scope="module")
def fast(tiny: ModelSpec) -> Solved:
    """The most throughput without a target."""
    return four_clients(tiny, Objective.THROUGHPUT)


@pytest.fixture(scope="module")
def quick(tiny: ModelSpec) -> Solved:
    """The least latency without a target."""
    return four_clients(tiny, Objective.LATENCY)


def test_throughput_runs_all_clients_and_latency_one(fast: Solved, quick: Solved) -> None:
    assert fast.level.settings.max_running_requests == 4
    assert quick.level.settings.max_running_requests == 1
    assert quick.prediction.tpot_ms_p95 < fast.prediction.tpot_ms_p95
    assert quick.prediction.output_tokens_per_s < fast.prediction.output_tokens_per_s


def test_goodput_runs_fewer_requests_where_more_miss_the_target(
    tiny: ModelSpec, fast: Solved, quick: Solved
) -> None:
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
        Workload(64, 32, 2, slo_tpot_ms=0.5, slo_ttft_ms=60.0),
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


@pytest.mark.parametrize(("output", "chunk", "told"), [(4, None, True), (4, 512, False), (32, None, False)])
def test_a_larger_chunk_is_named_where_prompts_could_share_it(
    tiny: ModelSpec, output: int, chunk: int | None, told: bool
) -> None:
    request = SolveRequest(
        Workload(64, output, 4),
        1,
        max_running=4,
        chunk_tokens=chunk,
        min_kv_tokens=1024,
        prefill_from="trace",
    )
    answer = solve(tiny, phased(tiny), tiny_cost(), with_room(tiny, request, 10))
    assert any("see --chunk" in note for note in answer.notes) == told
