"""Static or dynamic: whether a runtime's moving hot set would beat a fixed one on this traffic.

The rivals hold as many experts as the plan. An LRU cache of each layer computes on the GPU alone and loads what it
misses over the host link (SGLang's paged experts); kt-kernel's dynamic update makes each arriving prompt's experts
hot. A third, which sglang-kt 0.7.2 does not have, computes an LRU cache's misses on the CPU and loads them beside the
whole step.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.baselines import frequency
from placer.host_link import HostLink
from placer.level import Level
from placer.level_cost import StepCosts, step_costs
from placer.model.expert_share import expert_share_bytes
from placer.model.spec import ModelSpec
from placer.profiler.cost import CostModel
from placer.profiler.replay import rows_of
from placer.profiler.steps import StepKind, Steps
from placer.profiler.trace.lru import LruStack, consecutive_tokens
from placer.profiler.trace.prompt_update import PromptHot, last_arrived, runs
from placer.profiler.trace.trace import CountTrace, TokenTrace, Trace
from placer.solvers.problem import Mask
from placer.workload import Workload

_MOST_ENTRIES = 24_000_000
"""Steps times layers times experts that are costed: bounds the time to seconds."""
_BLOCK_ENTRIES = 2_000_000
WORTH = 0.01
"""A gain below one percent of the MoE time is said to be none."""

STATIC = ("plan", "oracle_static")
LRU_OVERLAPPED, LRU_SERIAL, LRU_CPU, UPDATE = "lru_overlapped", "lru_serial", "lru_cpu", "prompt_update"


@dataclass(frozen=True)
class Dynamic:
    """Fixed and moving hot sets on the same consecutive decode steps.

    Attributes
    ----------
    steps, running_requests
        Steps that were played, and requests in each.
    slots_per_layer
        Experts that the LRU cache holds in each layer, with the plan's bytes.
    hit_share
        Share of selections whose expert is hot: "plan", "oracle_static" (the most selected experts of these very
        steps: no fixed set serves more), "lru" and "prompt_update".
    loads_per_step
        Experts that a step of the LRU cache loads.
    step_us
        Mean MoE time of a step: "plan", "oracle_static", "lru_overlapped" and "lru_serial" (loads beside the GPU's
        kernels, or before them), "lru_cpu" and "prompt_update". The LRU's are None where the link is unknown, or
        the cache holds fewer experts than a token needs.
    link
        Over which experts are loaded.
    assumptions
        What the times rest on, one sentence each.
    verdict
        What it means, with its figures, in one sentence.
    matters
        Whether a dynamic policy that runtimes have is ahead, or could be.
    """

    steps: int
    running_requests: int
    slots_per_layer: int
    hit_share: Mapping[str, float]
    loads_per_step: float
    step_us: Mapping[str, float | None]
    link: HostLink | None
    assumptions: tuple[str, ...]
    verdict: str
    matters: bool


def no_comparison(hot: Mask, trace: Trace | None) -> str | None:
    """Why a moving hot set cannot be compared with ``hot`` (bool [L, E]) on ``trace``, or None."""
    if trace is None:
        return "no trace was given"
    if isinstance(trace, CountTrace):
        return "counts hold no order of tokens"
    if hot.all() or not hot.any():
        return f"{'every' if hot.any() else 'no'} expert is hot"
    return None


def compare_dynamic(
    hot: Mask,
    trace: TokenTrace,
    *,
    model: ModelSpec,
    cost: CostModel,
    level: Level,
    workload: Workload,
    tp: int,
    link: HostLink | None,
    seed: int,
) -> Dynamic:
    """``hot`` (bool [L, E]) against moving hot sets of as many experts, on the decode tokens of ``trace``.

    The plan should not have been made from ``trace``; the steps follow each other, as a cache needs.
    """
    L, E = hot.shape
    running, slots = level.settings.max_running_requests, int(hot.sum()) // L
    played = consecutive_tokens(trace, running, seed, max(1, _MOST_ENTRIES // (L * E)))
    # Smaller ids first among equals, as a frequency plan would take them.
    counts = sum(rows.sum(axis=0, dtype=np.int64) for _, rows in _blocks(trace, played))
    oracle = frequency(np.asarray(counts), int(hot.sum()))
    prompts = PromptHot(trace, hot.sum(axis=1))
    arrived = last_arrived(trace.request[played])
    load_us = 0.0
    if link is not None:
        load_us = expert_share_bytes(model, tp) / link.bytes_per_s * 1e6
    stack = LruStack(L, E)
    sums = dict.fromkeys((*STATIC, LRU_OVERLAPPED, LRU_SERIAL, LRU_CPU, UPDATE), 0.0)
    hits = dict.fromkeys((*STATIC, "lru", UPDATE), 0.0)
    loads = 0
    for here, rows in _blocks(trace, played):
        steps = Steps(rows, np.full(len(rows), running, dtype=np.int64), StepKind.DECODE)
        costs = step_costs(model, cost, steps, level.settings, workload, tp)
        for name, mask in (("plan", hot), ("oracle_static", oracle)):
            sums[name] += float(costs.layer_us(mask).sum())
            hits[name] += float(rows[:, mask].sum())
        for part, request in runs(arrived[here]):
            mask = prompts.mask(request)
            sums[UPDATE] += float(_of(costs, part).layer_us(mask).sum())
            hits[UPDATE] += float(rows[part][:, mask].sum())
        held = stack.depths(rows) < slots
        hits["lru"] += float(rows[held].sum())
        missing = ((rows > 0) & ~held).sum(axis=2)
        loads += int(missing.sum())
        gpu_us, _ = costs.side_us(np.ones_like(hot))
        loads_us = load_us * missing + cost.rates.transfer_call_us * (missing > 0)
        sums[LRU_OVERLAPPED] += float(np.maximum(gpu_us, loads_us).sum())
        sums[LRU_SERIAL] += float((gpu_us + loads_us).sum())
        hybrid_us = [_of(costs, slice(s, s + 1)).layer_us(held[s]).sum() for s in range(len(rows))]
        sums[LRU_CPU] += float(np.maximum(hybrid_us, loads_us.sum(axis=1)).sum())
    S, selections = len(played), float(np.asarray(counts).sum())
    step_us: dict[str, float | None] = {name: total / S for name, total in sums.items()}
    if link is None or slots < model.top_k:
        step_us |= {LRU_OVERLAPPED: None, LRU_SERIAL: None, LRU_CPU: None}
    hit_share = {name: found / selections for name, found in hits.items()}
    matters, verdict = _verdict(step_us, hit_share, running, prompts.from_output)
    return Dynamic(
        steps=S,
        running_requests=running,
        slots_per_layer=slots,
        hit_share=hit_share,
        loads_per_step=loads / S,
        step_us=step_us,
        link=link,
        assumptions=_assumptions(link, load_us, prompts.from_output, cost),
        verdict=verdict,
        matters=matters,
    )


def _blocks(trace: TokenTrace, played: NDArray[np.int64]) -> Iterator[tuple[slice, NDArray[np.int32]]]:
    """Rows [S, L, E] of the steps ``played`` [S, R], a block at a time."""
    block = max(1, _BLOCK_ENTRIES // (trace.topk_ids.shape[1] * trace.header.experts))
    for start in range(0, len(played), block):
        here = slice(start, min(start + block, len(played)))
        yield here, rows_of(trace, played[here])


def _of(costs: StepCosts, part: slice) -> StepCosts:
    """The costs of some of the steps."""
    sliced: dict[str, Any] = {
        field.name: getattr(costs, field.name)[part]
        for field in fields(costs)
        if isinstance(getattr(costs, field.name), np.ndarray)
    }
    return replace(costs, **sliced)


def _assumptions(
    link: HostLink | None, load_us: float, from_output: bool, cost: CostModel
) -> tuple[str, ...]:
    lru = (
        "the LRU's times are unknown: no datasheet of the GPU's host link"
        if link is None
        else f"an expert takes {load_us:,.0f} µs to load ({link.origin}), a layer that loads "
        f"{cost.rates.transfer_call_us:,.0f} µs more; an LRU step is one kernel call, in a CUDA graph as the plan's"
    )
    prompt = "a request's own output stands in for its prompt, better than any prompt" if from_output else ""
    return tuple(
        said
        for said in (
            lru,
            "dynamic update: copies, and the prefill on the GPU that it needs, are not counted",
            prompt and f"dynamic update: {prompt}",
            "no expert is deferred here, under the plan and its rivals alike"
            if cost.behaviour.deferred_experts
            else "",
        )
        if said
    )


def _verdict(
    step_us: Mapping[str, float | None], hit_share: Mapping[str, float], running: int, from_output: bool
) -> tuple[bool, str]:
    """Whether a dynamic policy is or may be ahead of every fixed set, and the sentence that says so."""
    best = min(us for name in STATIC if (us := step_us[name]) is not None)
    plan_us = step_us["plan"] or best

    def gain(name: str) -> float | None:
        us = step_us[name]
        return None if us is None else best / us - 1.0

    def against(name: str) -> str:
        us = step_us[name] or plan_us
        return f"{us / plan_us:.2f} times the plan's MoE time"

    where = f"at {running:,} running request{'s' if running > 1 else ''}"
    serial, overlapped, update, bound = (gain(name) for name in (LRU_SERIAL, LRU_OVERLAPPED, UPDATE, LRU_CPU))
    served = f"({hit_share['lru']:.1%} of selections found, {hit_share['plan']:.1%} by the plan)"
    if serial is not None and serial > WORTH:
        return True, (
            f"dynamic wins {where}: an LRU cache (SGLang's paged experts) on the same bytes takes "
            f"{against(LRU_SERIAL)} {served}, loads included, and the hottest experts in hindsight do not match it"
        )
    if update is not None and update > WORTH:
        return True, (
            f"dynamic may win {where}: kt-kernel's dynamic update would take {against(UPDATE)} "
            f"({hit_share[UPDATE]:.1%} of selections hot, {hit_share['plan']:.1%} by the plan), its copies not counted"
            f"{', each output standing in for its prompt' if from_output else ''}"
        )
    if overlapped is not None and overlapped > WORTH:
        return True, (
            f"dynamic may win {where}: an LRU cache on the same bytes takes {against(LRU_OVERLAPPED)} {served} if all "
            f"loads run beside the kernels, {against(LRU_SERIAL)} if none do"
        )
    rivals = f"kt-kernel's dynamic update takes {against(UPDATE)}"
    if overlapped is not None:
        rivals = f"an LRU cache on the same bytes takes {against(LRU_OVERLAPPED)} {served}, {rivals}"
    more = ""
    if bound is not None and bound > WORTH:
        more = (
            f"; recency would save {1 - 1 / (1 + bound):.0%} if a runtime computed an LRU cache's misses on the CPU "
            "and loaded them beside the step, which sglang-kt 0.7.2 does not"
        )
    return False, f"static is right {where}: {rivals}{more}"
