"""The joint decision: which level of server settings, and which experts are hot at it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from placer.baselines import BASELINES
from placer.choosing import Choosing, simulated
from placer.convergence import converge, most_step_factor
from placer.domain_costs import Domains
from placer.errors import InfeasibleError
from placer.frontier import frontier
from placer.gain import gains
from placer.hot_bounds import hot_bounds
from placer.level import Level
from placer.level_cost import several_end
from placer.level_predictions import level_predictions
from placer.level_problems import LevelProblems
from placer.level_room import request_levels, roomy_levels, without_host
from placer.level_search import LevelSearch
from placer.level_solution import LevelSolution, anew, exactly, own_bound_us
from placer.model.spec import ModelSpec
from placer.objective import Objective
from placer.prediction import Prediction
from placer.profiler.cost import CostModel
from placer.profiler.steps import StepKind
from placer.profiler.trace.mix import check_mix, mixed
from placer.profiler.trace.selection import coverage_of_mask, selection_counts
from placer.profiler.trace.split import split_requests, splits_by_request
from placer.profiler.trace.trace import Trace
from placer.quick_check import QuickCheck
from placer.replays import EVALUATION_SEED, EVALUATION_STEPS, PROMPTS_LEFT_OUT, SPLIT_SHARES, Replays
from placer.robust import robust_answer, robust_domains, search_robust, worst_us
from placer.sensitivity import sensitivity
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solvers.ilp import write_lp
from placer.solvers.problem import Mask, PlacementProblem
from placer.solvers.solution import SolverStatus, relative_gap
from placer.target_advice import target_advice
from placer.target_floor import below_floor
from placer.target_search import TargetSearch
from placer.targets import MISSED, Reached, missed_text, targets_missed
from placer.whole_layers import whole_layers

_ROBUST_GAP = 0.01
"""Least gap that is asked for on the worst domain, whose search solves the level many times."""

Progress = Callable[[str, float], None]
"""Told what is being done and the share of the whole that is done."""
Advice = Callable[[Sequence[Reached]], str]
"""What would meet the targets, from what every plan that was tried reaches."""


def solve(
    model: ModelSpec,
    trace: Trace,
    cost: CostModel,
    request: SolveRequest,
    progress: Progress = lambda _text, _share: None,
) -> Solved:
    """Choose settings and hot experts for ``model`` under ``request``.

    Raises
    ------
    InfeasibleError
        When nothing fits the budget, or no level meets the latency targets.
    """
    request = without_host(model, request)
    grid = request_levels(model, request)
    out_of_reach = below_floor(model, cost, request)

    def advice(reached: Sequence[Reached]) -> str:
        return target_advice(
            request,
            reached,
            QuickCheck(model, trace, cost, request),
            lambda text: progress(text, 0.95),
            out_of_reach=out_of_reach,
        )

    return solve_levels(
        model, trace, cost, request, grid, progress, advice, hopeless=out_of_reach is not None
    )


def solve_levels(
    model: ModelSpec,
    trace: Trace,
    cost: CostModel,
    request: SolveRequest,
    grid: tuple[Level, ...],
    progress: Progress = lambda _text, _share: None,
    advice: Advice = lambda _reached: "relax the target",
    *,
    hopeless: bool = False,
) -> Solved:
    """Choose one level of ``grid`` and its hot experts.

    Levels are solved as `LevelSearch` says. The plan and the baselines are then compared on requests kept for
    choosing, at the same level and bytes. Where it is known to be ``hopeless`` that any plan keeps the targets, none is
    looked for: what the frequency ranking reaches at every level is told instead.

    Raises
    ------
    InfeasibleError
        When no level meets the latency targets.
    """
    started = time.monotonic()
    request.behaviour.check(model.top_k)
    cost = replace(cost, behaviour=request.behaviour)
    limits = hot_bounds(model, request.pins, least=request.least_hot, most=request.most_hot)
    grid = roomy_levels(model, grid, limits, request)
    if request.mix:
        check_mix(trace, request.mix, requests=len(SPLIT_SHARES))
    names: tuple[str, ...] = ()
    left_out: dict[str, str] = {}
    if request.robust is not None:
        names, left_out = robust_domains(trace, request.mix)
    parts = split_requests(trace, SPLIT_SHARES, seed=request.seed)
    solving, choosing, reporting = (mixed(part, request.mix, request.seed) for part in parts)
    counts = selection_counts(solving)
    problems = LevelProblems(
        model, cost, request, limits, Replays(solving, request.seed, request.prefill_from), counts
    )
    choice = Choosing(
        model,
        cost,
        request,
        Replays(choosing, request.seed + EVALUATION_SEED, request.prefill_from, step_factor=EVALUATION_STEPS),
        choosing,
    )

    def told(_reached: Sequence[Reached]) -> str:
        """Advice that holds on the requests that an answer is reported on too."""
        report = Replays(
            reporting, request.seed + 2 * EVALUATION_SEED, request.prefill_from, step_factor=EVALUATION_STEPS
        )
        return advice(choice.reached_beside(Choosing(model, cost, request, report, reporting)))

    if hopeless:
        for number, level in enumerate(grid):
            progress(
                f"level {number + 1} of {len(grid)}: what the frequency ranking reaches", number / len(grid)
            )
            choice.figures(level, problems.baseline("frequency", level))
        raise _none_serves(choice, request, told)
    levels = LevelSearch(problems, choice.serves, progress)
    bounds = levels.bounds
    tried = levels.solved(grid)
    progress("comparing levels", 0.9)
    search = TargetSearch(problems, choice, bounds, set(), set(), lambda text: progress(text, 0.9))
    best = _best(search, tried, told)
    if best.emphasis is not None or search.missed or request.objective is not Objective.THROUGHPUT:
        # Levels that better ones seemed to rule out count again once those miss the targets.
        served = [entry for entry in tried if choice.serves(entry.level, entry.hot)]
        left = levels.refined([best, *(entry for entry in served if entry.level is not best.level)])
        best = _best(search, [*left, *levels.refined([best]), best], told)
        done = {entry.level.settings: entry for entry in left if entry.emphasis is None}
        tried = sorted(
            (done.get(entry.level.settings, entry) for entry in tried), key=LevelSolution.objective_us
        )
    missed = search.missed
    weighting = problems.weighed(best.level) if best.emphasis is None else best.emphasis.weighting
    choice_costs = choice.costs(best.level)
    entries = {1: best}

    def choosing_us(factor: int) -> float:
        """The time on the choosing requests of the level's plan from ``factor`` times the steps."""
        if factor not in entries:
            progress(f"solving on {factor} times the steps", 0.9)
            more = Replays(solving, request.seed, request.prefill_from, step_factor=factor)
            # The plan is asked for; its bound is raised below if the plan is taken.
            entries[factor] = anew(replace(problems, replays=more), best, entries[factor // 2].hot)
        return choice_costs.weighted_us(entries[factor].hot, weighting)

    convergence = converge(choosing_us, most_factor=most_step_factor(best.program.shape[0], counts.size))
    if convergence.used > 1:
        more = entries[convergence.used]
        best = search.serving([more, best])
        if best is more:
            bounds[best.level.settings] = own_bound_us(best, request)
        best = search.serving([*levels.refined([best]), best])
    if request.lp_path is not None:
        write_lp(best.program, request.lp_path)
    if request.solver != "auto":
        exact = exactly(best, request)
        best = search.serving([exact, best])
        bounds[best.level.settings] = max(bounds[best.level.settings], exact.bound_us)

    settings = best.level.settings
    masks: dict[str, Mask] = {
        "plan": best.hot,
        **{name: problems.baseline(name, best.level) for name in BASELINES},
    }
    score: Callable[[Mask], float] = choice_costs.output_token_us
    if request.objective is not Objective.THROUGHPUT:
        score = lambda mask: simulated(request.objective, choice.figures(best.level, mask))  # noqa: E731
    robust = None
    if request.robust is not None:
        domains = Domains(names, model, cost, best.level, request.workload, request.tp, request.prefill_from)

        def domain_problem(part: Trace, steps: Replays) -> PlacementProblem:
            counted = selection_counts(part)
            return replace(problems, replays=steps, counts=counted, expected={}).problem(best.level)

        robust = search_robust(
            domains.problems(parts[0], request.seed, domain_problem),
            request.robust,
            gap=max(_ROBUST_GAP, request.gap),
            time_limit_s=request.time_limit_s,
            seed=request.seed,
            warm_starts=(best.hot,),
            left_out=left_out,
            progress=lambda text: progress(text, 0.9),
        )
        score = worst_us(robust, domains.costs(parts[1], request.seed + EVALUATION_SEED))
        kept = search.serving([best.with_plan(robust.worst_case.hot), best])
        masks["plan"] = min((kept.hot, best.hot), key=score)
    chosen = _fastest(
        {name: mask for name, mask in masks.items() if name == "plan" or choice.serves(best.level, mask)},
        score,
    )
    hot = masks[chosen]
    objective_us = best.problem.objective_us(hot)
    missed -= {settings}
    bound_us = min(bound for each, bound in bounds.items() if each not in missed)
    progress("predicting on requests that were not used", 0.95)
    report = Replays(
        reporting, request.seed + 2 * EVALUATION_SEED, request.prefill_from, step_factor=EVALUATION_STEPS
    )
    report_costs = report.costs(model, cost, best.level, request.workload, request.tp)
    report_counts = selection_counts(reporting)

    def at_level(level: Level, masks: dict[str, Mask], banded: tuple[str, ...]) -> dict[str, Prediction]:
        here = level is best.level
        costs = report_costs if here else report.costs(model, cost, level, request.workload, request.tp)
        shares = {name: 1.0 - coverage_of_mask(report_counts, mask) for name, mask in masks.items()}
        return level_predictions(model, cost, report, costs, level, masks, shares, request, banded=banded)

    predictions = at_level(best.level, masks, (chosen,))
    notes = [*reporting.header.notes, *report.notes()]
    if request.prefill_from == "none":
        notes.append(PROMPTS_LEFT_OUT)
    if np.array_equal(masks["plan"], masks["frequency"]) and not masks["plan"].all():
        notes.append(
            "the plan is the frequency ranking: where the CPU bounds every layer, the best placement of equal "
            "experts is a sort, and what is left to decide is the level"
        )
    if chosen != "plan":
        notes.append(
            f"the baseline '{chosen}' was fastest on the requests kept for choosing and is returned in place "
            "of the solver's plan"
        )
    if request.chunk_tokens is None and several_end(settings, request.workload):
        notes.append(
            "answers are so short that several requests end in a step, and the prompts that follow may share a "
            "chunk: one larger than a prompt may be faster, and was not tried; see --chunk"
        )
    notes += search.notes(best)
    missed_by = missed_text(request.workload, predictions[chosen])
    if missed_by and request.objective is not Objective.GOODPUT:
        notes.append(
            f"{MISSED}{missed_by}; those that the plan was chosen on keep "
            "the targets, so the miss is within what traffic of this kind varies by"
        )
    gap = relative_gap(objective_us, bound_us, best.problem.constant_us)
    status = best.solution.status
    if status is SolverStatus.OPTIMAL and gap > request.gap:
        # A level that was not chosen is still open, or a baseline replaced the plan.
        status = SolverStatus.SEARCHED
    # A robust plan or a baseline may be returned in place of the level's own best.
    returned = best.with_plan(hot)
    return Solved(
        level=best.level,
        hot=hot,
        chosen=chosen,
        priority=problems.expected[StepKind.DECODE, settings.max_running_requests][1],
        solver=best.solution.solver,
        status=status.value,
        objective_us=objective_us,
        bound_us=bound_us,
        gap=gap,
        seconds=time.monotonic() - started,
        levels_solved=len(tried),
        levels_total=len(grid),
        levels_missed=len(missed),
        objective=request.objective,
        prediction=predictions[chosen],
        baselines={name: predictions[name] for name in BASELINES},
        baseline_masks={name: masks[name] for name in BASELINES},
        coverage=coverage_of_mask(report_counts, hot),
        uniform_null=float(hot.mean()),
        extrapolated_share=report_costs.decode.extrapolated_share,
        notes=tuple(dict.fromkeys(notes)),
        whole_layers=whole_layers(report_costs.decode),
        sensitivity=sensitivity(best.problem, hot, best.price_us_per_byte),
        held_out=splits_by_request(trace, len(SPLIT_SHARES)),
        frontier=frontier(
            returned, tried, bounds, lambda level, mask: at_level(level, {"plan": mask}, ())["plan"]
        )
        if request.frontier
        else (),
        convergence=convergence,
        gains=gains(
            hot,
            {name: masks[name] for name in BASELINES},
            parts[2],
            report_costs,
            model=model,
            cost=cost,
            level=best.level,
            workload=request.workload,
            tp=request.tp,
            prefill_from=request.prefill_from,
            seed=request.seed,
            mix=request.mix,
        ),
        robust=None
        if robust is None
        else robust_answer(
            robust,
            domains.costs(parts[2], request.seed + 2 * EVALUATION_SEED),
            hot,
            best.hot,
            masks["frequency"],
        ),
    )


def _best(search: TargetSearch, tried: list[LevelSolution], advice: Advice) -> LevelSolution:
    """The best level and plan; an error that says by how much every target is missed where none keeps them."""
    best = search.best(tried)
    if best is None:
        raise _none_serves(search.choosing, search.problems.request, advice)
    return best


def _none_serves(choice: Choosing, request: SolveRequest, advice: Advice) -> InfeasibleError:
    goodput = request.objective is Objective.GOODPUT
    return targets_missed(request.workload, choice.reached, advice(choice.reached), goodput=goodput)


def _fastest(masks: dict[str, Mask], score: Callable[[Mask], float]) -> str:
    """Name of the mask with the least ``score``, a time; ties go to the solver's plan."""
    times = {name: score(mask) for name, mask in masks.items()}
    least = min(times.values())
    if times["plan"] <= least:
        return "plan"
    return min(times, key=lambda name: times[name])
