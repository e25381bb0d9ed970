"""From the comparison with moving hot sets to the section ``dynamic`` of a document."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from placer.dynamic import LRU_CPU, LRU_OVERLAPPED, LRU_SERIAL, Dynamic, compare_dynamic, no_comparison
from placer.host_link import host_link
from placer.level import Level
from placer.model.spec import ModelSpec
from placer.profiler.cost import CostModel
from placer.profiler.profile import Profile
from placer.profiler.trace.mix import mixed
from placer.profiler.trace.split import split_requests
from placer.profiler.trace.trace import TokenTrace, Trace
from placer.replays import EVALUATION_SEED, SPLIT_SHARES
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solvers.problem import Mask
from placer.workload import Workload


def planned_dynamic(
    model: ModelSpec,
    trace: Trace | None,
    profile: Profile,
    request: SolveRequest,
    solved: Solved,
    null_reasons: dict[str, str],
) -> dict[str, Any] | None:
    """`dynamic_section` of a solve: on the requests of ``trace`` that it only reports on, in its mix."""
    reported = None
    if trace is not None:
        parts = split_requests(trace, SPLIT_SHARES, seed=request.seed)
        reported = mixed(parts[-1], request.mix, request.seed)
    return dynamic_section(
        solved.hot,
        reported,
        profile,
        model=model,
        cost=replace(profile.cost_model(), behaviour=request.behaviour),
        level=solved.level,
        workload=request.workload,
        tp=request.tp,
        seed=request.seed + 2 * EVALUATION_SEED,
        null_reasons=null_reasons,
    )


def dynamic_section(
    hot: Mask,
    trace: Trace | None,
    profile: Profile,
    *,
    model: ModelSpec,
    cost: CostModel,
    level: Level,
    workload: Workload,
    tp: int,
    seed: int,
    null_reasons: dict[str, str],
) -> dict[str, Any] | None:
    """What `compare_dynamic` finds on the reported requests ``trace`` as plain values; adds to ``null_reasons``."""
    if (why_not := no_comparison(hot, trace)) is not None or not isinstance(trace, TokenTrace):
        null_reasons["dynamic"] = why_not or "no trace was given"
        return None
    found = compare_dynamic(
        hot,
        trace,
        model=model,
        cost=cost,
        level=level,
        workload=workload,
        tp=tp,
        link=host_link(profile),
        seed=seed,
    )
    return _plain(found, null_reasons)


def _plain(found: Dynamic, null_reasons: dict[str, str]) -> dict[str, Any]:
    unknown = (
        "no datasheet of the GPU's host link"
        if found.link is None
        else f"{found.slots_per_layer} slots per layer hold fewer experts than a token needs"
    )
    if found.link is None:
        null_reasons["dynamic.link"] = unknown
    for name in (LRU_OVERLAPPED, LRU_SERIAL, LRU_CPU):
        if found.step_us[name] is None:
            null_reasons[f"dynamic.step_us.{name}"] = unknown
    return {
        **asdict(found),
        "hit_share": _rounded(found.hit_share),
        "step_us": _rounded(found.step_us),
        "assumptions": list(found.assumptions),
    }


def _rounded(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else float(f"{value:.6g}") for name, value in values.items()}
