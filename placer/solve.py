"""The joint decision: which level of server settings, and which experts are hot at it."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from placer.baselines import BASELINES
from placer.convergence import converge, most_step_factor
from placer.domain_costs import Domains
from placer.frontier import frontier
from placer.gain import gains
from placer.hbm import ServerSettings
from placer.hot_bounds import hot_bounds
from placer.level import Level
from placer.level_predictions import level_predictions
from placer.level_problems import LevelProblems
from placer.level_room import requested_levels, roomy_levels
from placer.level_solution import LEVEL_GAP, LevelSolution, exactly, refined, solve_level
from placer.model.spec import ModelSpec
from placer.prediction import Prediction, predict
from placer.profiler.cost import CostModel
from placer.profiler.steps import StepKind
from placer.profiler.trace.mix import check_mix, mixed
from placer.profiler.trace.selection import coverage_of_mask, selection_counts
from placer.profiler.trace.split import split_requests, splits_by_request
from placer.profiler.trace.trace import Trace
from placer.replays import EVALUATION_SEED, EVALUATION_STEPS, Replays
from placer.robust import robust_answer, robust_domains, search_robust, worst_us
from placer.sensitivity import sensitivity
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solvers.ilp import write_lp
from placer.solvers.problem import Mask, PlacementProblem
from placer.solvers.solution import SolverStatus, relative_gap
from placer.targets import has_targets, meets_targets, targets_missed
from placer.whole_layers import whole_layers

SPLIT_SHARES = (0.5, 0.2, 0.3)
"""Shares of requests to solve on, to choose between plans on, and only to report on."""
_ROBUST_GAP = 0.01
"""Least gap that is asked for on the worst domain, whose search solves the level many times."""

Progress = Callable[[str, float], None]
"""Told what is being done and the share of the whole that is done."""


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
    # Contradictions are told before the budget is looked at.
    hot_bounds(model, request.pins, least=request.least_hot, most=request.most_hot)
    grid = requested_levels(model, request)
    return solve_levels(model, trace, cost, request, grid, progress)


def solve_levels(
    model: ModelSpec,
    trace: Trace,
    cost: CostModel,
    request: SolveRequest,
    grid: tuple[Level, ...],
    progress: Progress = lambda _text, _share: None,
) -> Solved:
    """Choose one level of ``grid`` and its hot experts.

    Every level is solved to 2 %; those that its bound does not rule out are solved to ``request.gap``. The
    plan and the baselines are then compared on requests kept for choosing, at the same level and bytes.

    Raises
    ------
    InfeasibleError
        When no level meets the latency targets.
    """
    started = time.monotonic()
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
    choice = Replays(
        choosing, request.seed + EVALUATION_SEED, request.prefill_from, step_factor=EVALUATION_STEPS
    )

    tried: list[LevelSolution] = []
    bounds: dict[ServerSettings, float] = {}
    for number, level in enumerate(problems.promising_first(grid)):
        progress(
            f"level {number + 1} of {len(grid)}: {level.settings.max_running_requests} running requests, "
            f"chunk {level.settings.chunk_tokens}",
            0.8 * number / len(grid),
        )
        problem, frequency = problems.problem(level), problems.baseline("frequency", level)
        solution = solve_level(problem, request, max(LEVEL_GAP, request.gap), frequency)
        if solution.bound_us is not None:
            bounds[level.settings] = solution.bound_us
        if solution.hot is not None:
            tried.append(LevelSolution(level, problem, solution))
    progress(f"proving the plan to {request.gap:.1%}", 0.8)
    tried = refined(tried, bounds, request)
    progress("comparing levels", 0.9)
    best, missed = _first_within_targets(tried, model, cost, choice, choosing, request)
    if missed:
        # Levels that better ones seemed to rule out count again once those miss the targets.
        left = [entry for entry in tried if entry.level.settings not in missed]
        left = refined(left, bounds, request)
        best, again = _first_within_targets([*left, best], model, cost, choice, choosing, request)
        tried = sorted(
            [*left, *(entry for entry in tried if entry.level.settings in missed)],
            key=LevelSolution.objective_us,
        )
        missed |= again
    choice_costs = choice.costs(model, cost, best.level, request.workload, request.tp)
    entries = {1: best}

    def choosing_us(factor: int) -> float:
        """The time on the choosing requests of the level's plan from ``factor`` times the steps."""
        if factor not in entries:
            progress(f"solving on {factor} times the steps", 0.9)
            more = Replays(solving, request.seed, request.prefill_from, step_factor=factor)
            problem = replace(problems, replays=more).problem(best.level)
            last = entries[factor // 2].hot
            # The plan is asked for; its bound is raised below if the plan is taken.
            solution = solve_level(problem, request, max(LEVEL_GAP, request.gap), last)
            entries[factor] = LevelSolution(best.level, problem, solution)
        return choice_costs.output_token_us(entries[factor].hot)

    convergence = converge(choosing_us, most_factor=most_step_factor(best.problem.shape[0], counts.size))
    if convergence.used > 1:
        within = [entries[convergence.used], best]
        best, _ = _first_within_targets(within, model, cost, choice, choosing, request)
        bounds[best.level.settings] = best.solution.bound_us or -np.inf
        (best,) = refined([best], bounds, request)
    if request.lp_path is not None:
        write_lp(best.problem, request.lp_path)
    if request.solver != "auto":
        best = exactly(best, request)
        bounds[best.level.settings] = max(bounds[best.level.settings], best.solution.bound_us or -np.inf)

    settings = best.level.settings
    masks: dict[str, Mask] = {
        "plan": best.hot,
        **{name: problems.baseline(name, best.level) for name in BASELINES},
    }
    score: Callable[[Mask], float] = choice_costs.output_token_us
    search = None
    if request.robust is not None:
        domains = Domains(names, model, cost, best.level, request.workload, request.tp, request.prefill_from)

        def domain_problem(part: Trace, steps: Replays) -> PlacementProblem:
            counted = selection_counts(part)
            return replace(problems, replays=steps, counts=counted, expected={}).problem(best.level)

        search = search_robust(
            domains.problems(parts[0], request.seed, domain_problem),
            request.robust,
            gap=max(_ROBUST_GAP, request.gap),
            time_limit_s=request.time_limit_s,
            seed=request.seed,
            warm_starts=(best.hot,),
            left_out=left_out,
            progress=lambda text: progress(text, 0.9),
        )
        score = worst_us(search, domains.costs(parts[1], request.seed + EVALUATION_SEED))
        robust_level = replace(best, solution=replace(best.solution, hot=search.worst_case.hot))
        kept, _ = _first_within_targets([robust_level, best], model, cost, choice, choosing, request)
        masks["plan"] = min((kept.hot, best.hot), key=score)
    chosen = _fastest(masks, score)
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
        notes.append(
            "prompts are left out (--prefill-from none): tokens/s counts them as free, TTFT is unknown"
        )
    if np.array_equal(masks["plan"], masks["frequency"]):
        notes.append(
            "the plan is the frequency ranking: where the CPU bounds every layer, the best placement of equal "
            "experts is a sort, and what is left to decide is the level"
        )
    if chosen != "plan":
        notes.append(
            f"the baseline '{chosen}' was fastest on the requests kept for choosing and is returned in place "
            "of the solver's plan"
        )
    if missed:
        notes.append(
            f"bound and gap are over the settings that meet the targets: {len(missed)} whose best plan misses them "
            f"{'is' if len(missed) == 1 else 'are'} left out"
        )
    gap = relative_gap(objective_us, bound_us, best.problem.constant_us)
    status = best.solution.status
    if status is SolverStatus.OPTIMAL and gap > request.gap:
        # A level that was not chosen is still open, or a baseline replaced the plan.
        status = SolverStatus.SEARCHED
    # A robust plan or a baseline may be returned in place of the level's own best.
    returned = replace(best, solution=replace(best.solution, hot=hot, objective_us=objective_us))
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
        prediction=predictions[chosen],
        baselines={name: predictions[name] for name in BASELINES},
        baseline_masks={name: masks[name] for name in BASELINES},
        coverage=coverage_of_mask(report_counts, hot),
        uniform_null=float(hot.mean()),
        extrapolated_share=report_costs.decode.extrapolated_share,
        notes=tuple(dict.fromkeys(notes)),
        whole_layers=whole_layers(report_costs.decode),
        sensitivity=sensitivity(best.problem, hot, best.solution.price_us_per_byte),
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
        if search is None
        else robust_answer(
            search,
            domains.costs(parts[2], request.seed + 2 * EVALUATION_SEED),
            hot,
            best.hot,
            masks["frequency"],
        ),
    )


def _first_within_targets(
    tried: list[LevelSolution],
    model: ModelSpec,
    cost: CostModel,
    choice: Replays,
    choosing: Trace,
    request: SolveRequest,
) -> tuple[LevelSolution, set[ServerSettings]]:
    """The best level whose predicted p95 latencies keep the targets, and the better ones that miss them.

    Raises
    ------
    InfeasibleError
        When none does: names the target and the best that any level reaches.
    """
    workload = request.workload
    if not has_targets(workload):
        return tried[0], set()
    counts = selection_counts(choosing)
    predictions: list[Prediction] = []
    missed: set[ServerSettings] = set()
    for entry in tried:
        costs = choice.costs(model, cost, entry.level, workload, request.tp)
        cold_share = 1.0 - coverage_of_mask(counts, entry.hot)
        figures = predict(costs, entry.hot, cold_share, entry.level.settings, workload, request.seed)
        if meets_targets(workload, figures):
            return entry, missed
        predictions.append(figures)
        missed.add(entry.level.settings)
    raise targets_missed(workload, predictions)


def _fastest(masks: dict[str, Mask], score: Callable[[Mask], float]) -> str:
    """Name of the mask with the least ``score``, a time; ties go to the solver's plan."""
    times = {name: score(mask) for name, mask in masks.items()}
    least = min(times.values())
    if times["plan"] <= least:
        return "plan"
    return min(times, key=lambda name: times[name])
