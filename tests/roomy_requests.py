"""Requests on the tiny model with room for so many hot experts, and what answers hold."""

from dataclasses import replace
from typing import Any

from small_traces import phased
from tiny_model import tiny_cost

from placer.level_room import request_levels
from placer.model.expert_share import expert_share_bytes
from placer.model.spec import ModelSpec
from placer.objective import Objective
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solving import solve
from placer.workload import Workload


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
