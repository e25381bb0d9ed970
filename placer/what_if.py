"""What a change of the server would do to a plan: each change solved again, everything else as planned."""

from dataclasses import dataclass, field, replace

from placer.change import Change, changes
from placer.errors import PlacerError
from placer.hbm import ServerSettings
from placer.hot_bounds import hot_bounds
from placer.level_predictions import level_predictions
from placer.level_problems import Expectations, LevelProblems
from placer.level_room import request_levels, roomy_levels, without_host
from placer.level_solution import solve_level
from placer.model.spec import ModelSpec
from placer.prediction import Prediction
from placer.profiler.cost import SideCost
from placer.profiler.profile import Profile
from placer.profiler.trace.mix import mixed
from placer.profiler.trace.selection import coverage_of_mask, selection_counts
from placer.profiler.trace.split import split_requests
from placer.profiler.trace.trace import Trace
from placer.replays import EVALUATION_SEED, EVALUATION_STEPS, SPLIT_SHARES, Replays
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solvers.problem import Mask
from placer.solving import Progress

GAP = 0.01
"""Gap at which the solver stops on a change, unless the plan's own is wider."""
TIME_LIMIT_S = 2.0
SOLVE_SHARE = 0.6
"""Of the time that a solve with its changes takes: the solve's own."""


@dataclass(frozen=True)
class WhatIf:
    """One change and what it does.

    Attributes
    ----------
    name, text, origin, regime
        Those of `Change`.
    fits
        Whether it can be run; None where that cannot be told.
    problem
        The line that breaks it, or why it cannot be told.
    settings, hot_experts, prediction
        The plan under the change, on the same reported requests; None where ``fits`` is not True.
    """

    name: str
    text: str
    origin: str
    regime: str | None
    fits: bool | None
    problem: str | None = None
    settings: ServerSettings | None = None
    hot_experts: int | None = None
    prediction: Prediction | None = None


def what_ifs(
    model: ModelSpec,
    trace: Trace,
    profile: Profile,
    request: SolveRequest,
    solved: Solved,
    progress: Progress = lambda _text, _share: None,
) -> tuple[WhatIf, ...]:
    """Each of `changes` to the plan ``solved``, solved on the same requests as it and predicted on the same others.

    Latency targets are left out, so that a change that misses one still shows its figures.
    """
    solving, choosing, reporting = (
        mixed(each, request.mix, request.seed)
        for each in split_requests(trace, SPLIT_SHARES, seed=request.seed)
    )
    traffic = _Traffic(model, request, solved.hot, solving, choosing, reporting)
    asked = list(changes(model, profile, request, solved.level.settings))
    rows = []
    for number, change in enumerate(asked):
        progress(f"what if: {change.text}", number / len(asked))
        rows.append(_row(traffic, change))
    return tuple(rows)


def part(progress: Progress, start: float, end: float) -> Progress:
    """``progress`` of a part of the work that goes from the share ``start`` of the whole to ``end``."""
    return lambda text, share: progress(text, start + (end - start) * share)


@dataclass
class _Traffic:
    """The parts of the trace as replays, made once for all changes."""

    model: ModelSpec
    request: SolveRequest
    planned: Mask
    solving: Trace
    choosing: Trace
    reporting: Trace
    expected: dict[tuple[SideCost, SideCost], Expectations] = field(default_factory=dict)

    def __post_init__(self) -> None:
        request = self.request
        self.counts = selection_counts(self.solving)
        self.report_counts = selection_counts(self.reporting)
        self.solve, self.choice, self.report = (
            Replays(part, request.seed + number * EVALUATION_SEED, request.prefill_from, step_factor=factor)
            for number, (part, factor) in enumerate(
                (
                    (self.solving, 1),
                    (self.choosing, EVALUATION_STEPS),
                    (self.reporting, EVALUATION_STEPS),
                )
            )
        )


def _row(traffic: _Traffic, change: Change) -> WhatIf:
    told = WhatIf(change.name, change.text, change.origin, change.regime, fits=None)
    if change.request is None:
        return replace(told, problem=change.origin)
    model, cost = traffic.model, replace(change.cost, behaviour=traffic.request.behaviour)
    request = replace(
        change.request,
        gap=max(GAP, change.request.gap),
        time_limit_s=min(TIME_LIMIT_S, change.request.time_limit_s),
    )
    try:
        request = without_host(model, request)
        limits = hot_bounds(model, request.pins, least=request.least_hot, most=request.most_hot)
        (level,) = roomy_levels(model, request_levels(model, request), limits, request)
    except PlacerError as error:
        return replace(told, fits=False, problem=error.what)
    expected = traffic.expected.setdefault((cost.cold, cost.hot), {})
    problems = LevelProblems(model, cost, request, limits, traffic.solve, traffic.counts, expected)
    frequency = problems.baseline("frequency", level)
    room = level.room_experts
    masks = [frequency, *([traffic.planned] if traffic.planned.sum() <= room else [])]
    solution = solve_level(problems.problem(level), request, request.gap, masks[-1])
    if solution.hot is not None:
        masks.insert(0, solution.hot)
    choosing = traffic.choice.costs(model, cost, level, request.workload, request.tp)
    hot = min(masks, key=choosing.output_token_us)
    figures = level_predictions(
        model,
        cost,
        traffic.report,
        traffic.report.costs(model, cost, level, request.workload, request.tp),
        level,
        {change.name: hot},
        {change.name: 1.0 - coverage_of_mask(traffic.report_counts, hot)},
        request,
        banded=(),
    )[change.name]
    return replace(told, fits=True, settings=level.settings, hot_experts=int(hot.sum()), prediction=figures)
