"""Drift between two traces: what a plan made from one costs on the other, against a re-solve there."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.hbm import ServerSettings
from placer.interval import Interval
from placer.level_cost import LevelCosts
from placer.matching import check_matching, profile_notes
from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument
from placer.planned_level import planned_level, planned_workload
from placer.profiler.cost import CostModel
from placer.profiler.profile import Profile
from placer.profiler.trace.heldout import LEAST_REQUESTS
from placer.profiler.trace.selection import coverage_of_mask, selection_counts
from placer.profiler.trace.split import resampled_requests, split_requests
from placer.profiler.trace.trace import CountTrace, Trace
from placer.replays import EVALUATION_SEED, EVALUATION_STEPS, SPLIT_SHARES, Replays
from placer.solve_request import SolveRequest
from placer.solvers.problem import Mask
from placer.solving import solve_levels

WORTH = 0.02
"""Saving of a re-solve, as a share of the time per output token, from which it is worth a restart."""
_DRAWS = 100

Progress = Callable[[str, float], None]


class Advice(StrEnum):
    """What to do with the plan."""

    KEEP = "keep"
    RESOLVE = "re-solve"
    RECORD_MORE = "record more"


@dataclass(frozen=True)
class PlanFigures:
    """A plan on the reporting requests of a trace, predicted.

    Attributes
    ----------
    decode_step_ms
        Mean decode step, base included.
    output_token_us
        Microseconds per output token of all requests together, prompts included where they are replayed.
    coverage
        Share of the selections that hot experts serve.
    """

    decode_step_ms: float
    output_token_us: float
    coverage: float


@dataclass(frozen=True)
class Drift:
    """A plan on the trace it was made from and on another, beside a re-solve on the other.

    Attributes
    ----------
    home, plan, resolved
        The plan on A, the plan on B, and the placement that solving on B gives at the same settings and bytes.
    moved_experts
        Hot experts of the re-solve that the plan holds cold.
    saving, saving_ms
        What the re-solve saves on B: share of the time per output token, and milliseconds of a decode step.
    no_interval
        Why there is no interval, or None.
    """

    settings: ServerSettings
    hot_total: int
    home: PlanFigures
    plan: PlanFigures
    resolved: PlanFigures
    moved_experts: int
    saving: Interval
    saving_ms: Interval
    worth: float
    advice: Advice
    notes: tuple[str, ...]
    no_interval: str | None

    @property
    def reason(self) -> str:
        """The figures that decided the advice, in one sentence."""
        saving, step = self.saving, self.saving_ms
        between = (
            ", interval not known"
            if saving.low is None or saving.high is None
            else f", {saving.low:z.1%} to {saving.high:z.1%}"
        )
        return (
            f"solving on B saves {saving.mean:z.1%}{between}, of the time per output token "
            f"({step.mean:z.3f} ms of a decode step of {self.plan.decode_step_ms:.3f} ms); "
            f"{self.worth:.1%} is worth a restart"
        )

    def document(self) -> dict[str, Any]:
        """The ``trace compare --json`` document."""
        reasons = {}
        if self.no_interval is not None:
            reasons = {
                f"{name}.{end}": self.no_interval
                for name in ("saving", "saving_ms")
                for end in ("low", "high")
            }
        return {
            "advice": self.advice.value,
            "reason": self.reason,
            "worth": self.worth,
            "saving": asdict(self.saving),
            "saving_ms": asdict(self.saving_ms),
            "drift_ms": self.plan.decode_step_ms - self.home.decode_step_ms,
            "plan_on_a": asdict(self.home),
            "plan_on_b": asdict(self.plan),
            "resolved_on_b": asdict(self.resolved),
            "hot_total": self.hot_total,
            "moved_experts": self.moved_experts,
            "settings": asdict(self.settings),
            "notes": list(self.notes),
            "null_reasons": reasons,
        }


def compare_traces(
    placement: PlacementDocument,
    model: ModelSpec,
    profile: Profile,
    first: Trace,
    second: Trace,
    *,
    worth: float = WORTH,
    prefill_from: str = "decode",
    time_limit_s: float = 30.0,
    seed: int = 0,
    progress: Progress = lambda _text, _share: None,
) -> Drift:
    """`drift` under the costs of ``profile`` (`placer trace compare`).

    Raises
    ------
    BadInputError
        When a trace, the profile or the placement belong to another model, or ``worth`` is no share.
    """
    if not 0 <= worth < 1:
        raise BadInputError(f"--worth is {worth}", "give a share between 0 and 1, such as 0.02")
    check_matching(placement, model, profile, first, second)
    found = drift(
        placement,
        model,
        profile.cost_model(),
        first,
        second,
        worth=worth,
        prefill_from=prefill_from,
        time_limit_s=time_limit_s,
        seed=seed,
        progress=progress,
    )
    notes = (*profile_notes(placement, profile), *profile.calibration_notes, *found.notes)
    return replace(found, notes=notes)


def drift(
    placement: PlacementDocument,
    model: ModelSpec,
    cost: CostModel,
    first: Trace,
    second: Trace,
    *,
    worth: float,
    prefill_from: str,
    time_limit_s: float,
    seed: int,
    progress: Progress = lambda _text, _share: None,
) -> Drift:
    """What ``placement``, made from the trace ``first``, costs on ``second`` against solving there anew.

    The re-solve keeps the placement's settings and number of hot experts, sees the solving and choosing requests
    of ``second`` alone, and both are scored on its reporting requests. The interval resamples those requests
    (bootstrap, 100 draws). Re-solving is advised when it saves at least ``worth`` and the interval excludes none.
    """
    level, workload = planned_level(placement), planned_workload(placement)
    request = SolveRequest(
        workload,
        placement.hbm.budget_bytes_per_gpu,
        tp=placement.tp,
        time_limit_s=time_limit_s,
        seed=seed,
        prefill_from=prefill_from,
        pins=placement.pins,
        least_hot=placement.least_hot,
        most_hot=placement.most_hot,
    )
    plan = placement.hot_mask()

    def costs(part: Trace, step_factor: int) -> tuple[LevelCosts, tuple[str, ...]]:
        replays = Replays(part, seed + 2 * EVALUATION_SEED, prefill_from, step_factor=step_factor)
        return replays.costs(model, cost, level, workload, placement.tp), replays.notes()

    progress("solving on B", 0.0)
    resolved = solve_levels(
        model, second, cost, request, (level,), lambda text, share: progress(f"on B: {text}", 0.5 * share)
    ).hot
    reports = [split_requests(trace, SPLIT_SHARES, seed=seed)[2] for trace in (first, second)]
    (home_costs, home_notes), (costs_b, notes_b) = (costs(report, EVALUATION_STEPS) for report in reports)
    home, on_b, anew = (
        _figures(plan, home_costs, reports[0]),
        _figures(plan, costs_b, reports[1]),
        _figures(resolved, costs_b, reports[1]),
    )
    no_interval = _no_interval(reports[1])
    draws: NDArray[np.float64] | None = None
    if no_interval is None:
        random = np.random.default_rng(seed)
        draws = np.empty((_DRAWS, 2))
        for number in range(_DRAWS):
            progress(f"resampling requests, {number + 1} of {_DRAWS}", 0.5 + 0.5 * number / _DRAWS)
            drawn, _ = costs(resampled_requests(reports[1], random), 1)
            draws[number] = _saving(plan, resolved, drawn)
    share, saved_ms = _saving(plan, resolved, costs_b)
    saving = _interval(share, None if draws is None else draws[:, 0])
    return Drift(
        settings=level.settings,
        hot_total=int(plan.sum()),
        home=home,
        plan=on_b,
        resolved=anew,
        moved_experts=int((resolved & ~plan).sum()),
        saving=saving,
        saving_ms=_interval(saved_ms, None if draws is None else draws[:, 1]),
        worth=worth,
        advice=advise(
            saving, worth, few_requests=no_interval is not None and not isinstance(reports[1], CountTrace)
        ),
        notes=tuple(
            dict.fromkeys(
                (
                    *_made_from(placement, first),
                    *reports[0].header.notes,
                    *reports[1].header.notes,
                    *home_notes,
                    *notes_b,
                )
            )
        ),
        no_interval=no_interval,
    )


def _figures(hot: Mask, costs: LevelCosts, trace: Trace) -> PlanFigures:
    return PlanFigures(
        decode_step_ms=float(costs.decode.step_us(hot).mean()) / 1e3,
        output_token_us=costs.output_token_us(hot),
        coverage=coverage_of_mask(selection_counts(trace), hot),
    )


def _saving(plan: Mask, resolved: Mask, costs: LevelCosts) -> tuple[float, float]:
    """Share of the time per output token, and milliseconds of a decode step, that ``resolved`` saves."""
    share = 1.0 - costs.output_token_us(resolved) / costs.output_token_us(plan)
    step_us = costs.decode.layer_us(plan).sum(axis=1) - costs.decode.layer_us(resolved).sum(axis=1)
    return share, float(step_us.mean()) / 1e3


def _made_from(placement: PlacementDocument, first: Trace) -> tuple[str, ...]:
    """Notes where the placement was made from other traffic than A: the plan on A is then no measure of B."""
    made, given = placement.trace, first.header.source
    notes = []
    if made is not None and made.source != given:
        notes.append(f"the placement was made from {made.source!r}, A is {given!r}")
    if placement.mix:
        notes.append("the placement was made for a mix of domains (--mix); A and B are taken as they are")
    return tuple(notes)


def _no_interval(report: Trace) -> str | None:
    if isinstance(report, CountTrace):
        requests, what = len(report.counts), "windows"
    else:
        requests, what = int(np.unique(report.request).size), "requests"
    if requests >= LEAST_REQUESTS:
        return None
    return f"B keeps {requests} {what} to report on: at least {LEAST_REQUESTS} are needed"


def _interval(mean: float, draws: NDArray[np.float64] | None) -> Interval:
    if draws is None:
        return Interval(mean, None, None)
    low, high = np.percentile(draws, (2.5, 97.5))
    return Interval(mean, float(low), float(high))


def advise(saving: Interval, worth: float, *, few_requests: bool) -> Advice:
    """Re-solve when the saving is worth it and surely one; record more when it may be none.

    ``few_requests`` says that requests are told apart and too few for an interval; counts of one run, which never
    have one, are taken at their word.
    """
    if saving.mean < worth:
        return Advice.KEEP
    if few_requests or (saving.low is not None and saving.low <= 0):
        return Advice.RECORD_MORE
    return Advice.RESOLVE
