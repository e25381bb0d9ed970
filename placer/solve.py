"""The joint decision: which level of server settings, and which experts are hot at it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from placer.baselines import BASELINES
from placer.convergence import Convergence, converge, most_step_factor
from placer.domain_costs import Domains
from placer.errors import BadInputError, InfeasibleError
from placer.gain import Gains, gains
from placer.hbm import ServerSettings, expert_share_bytes, repacking_bytes
from placer.hot_bounds import MIN_FLAG, HotBounds, hot_bounds
from placer.level import Level, levels
from placer.level_cost import placement_problem
from placer.model.spec import ModelSpec
from placer.prediction import Prediction, predict
from placer.profiler.cost import CostModel
from placer.profiler.steps import StepKind
from placer.profiler.trace.mix import check_mix, mixed
from placer.profiler.trace.selection import coverage_of_mask, selection_counts
from placer.profiler.trace.split import split_requests, splits_by_request
from placer.profiler.trace.trace import Trace
from placer.replays import EVALUATION_SEED, EVALUATION_STEPS, Replays
from placer.robust import Criterion, Robust, robust_answer, robust_domains, search_robust, worst_us
from placer.sampling import expected_expert_us, sampling_correction
from placer.sensitivity import Sensitivity, sensitivity
from placer.solvers.ilp import solve_ilp, write_lp
from placer.solvers.problem import Mask, PlacementProblem
from placer.solvers.solution import Solution, SolverStatus, relative_gap
from placer.solvers.structured import solve_structured
from placer.targets import has_targets, meets_targets, targets_missed
from placer.whole_layers import WholeLayers, whole_layers
from placer.workload import Workload

SPLIT_SHARES = (0.5, 0.2, 0.3)
"""Shares of requests to solve on, to choose between plans on, and only to report on."""
_LEVEL_GAP = 0.02
"""Gap to which a level is solved before it is known to be worth more."""
_ROBUST_GAP = 0.01
"""Least gap that is asked for on the worst domain, whose search solves the level many times."""

Progress = Callable[[str, float], None]
"""Told what is being done and the share of the whole that is done."""


Expectations = dict[tuple[StepKind, int], tuple[NDArray[np.float64], NDArray[np.float64]]]
"""Expected cost of each expert on either side over the whole solving part, by kind and tokens of a step."""


@dataclass(frozen=True)
class SolveRequest:
    """What the user asks of a solve.

    Attributes
    ----------
    budget_bytes
        Device memory per GPU that the process may use.
    max_running
        Running requests, or None to decide them.
    min_kv_tokens
        Least capacity of the KV pool, in tokens.
    kv_dtypes
        KV precisions to choose from ("bf16", "fp8").
    solver
        "auto" (structured), "highs" or "cbc" (the exact ILP on the best level).
    gap
        Relative gap at which the solver stops.
    time_limit_s
        Wall time of the solver on the level that is returned.
    prove
        Whether to go on to the time limit on levels whose gap is still open.
    prefill_from
        "trace", or "decode" to let decode tokens stand in where the trace has no prompts, or "none".
    chunk_tokens
        Prefill chunk, or None to decide it.
    min_hot_per_layer
        Hot experts per layer that settings must leave room for.
    speculative
        Whether to keep room for the model's MTP layer.
    loss_bytes
        Device memory gone after start, or None for the measured table.
    device_bytes
        What a process can use of one GPU, None where it is not known.
    pins
        Layers (checkpoint indices) whose experts are all hot (True) or all cold (False).
    least_hot, most_hot
        Bounds on the hot experts of every layer; ``most_hot`` None for no upper bound.
    frontier
        Whether to state the best plan of every number of running requests.
    lp_path
        Where to write the chosen level as an integer linear program, or None.
    mix
        Shares of the tokens by domain of the trace; empty for the trace's own.
    robust
        By which criterion the worst domain is made as good as can be, or None to plan for all together.
    """

    workload: Workload
    budget_bytes: int
    tp: int = 1
    max_running: int | None = None
    min_kv_tokens: int = 0
    kv_dtypes: tuple[str, ...] = ("bf16",)
    solver: str = "auto"
    gap: float = 0.005
    time_limit_s: float = 30.0
    prove: bool = False
    seed: int = 0
    prefill_from: str = "decode"
    chunk_tokens: int | None = None
    min_hot_per_layer: int = 0
    speculative: bool = False
    loss_bytes: int | None = None
    device_bytes: int | None = None
    pins: Mapping[int, bool] = field(default_factory=dict)
    least_hot: int = 0
    most_hot: int | None = None
    frontier: bool = False
    lp_path: Path | None = None
    mix: Mapping[str, float] = field(default_factory=dict)
    robust: Criterion | None = None

    def __post_init__(self) -> None:
        if self.max_running is not None and self.max_running < 1:
            raise BadInputError(f"--max-running is {self.max_running}", "give at least 1, or auto")
        if self.max_running is not None and self.max_running > self.workload.concurrency:
            raise BadInputError(
                f"--max-running {self.max_running} exceeds the {self.workload.concurrency} clients of --concurrency",
                "raise --concurrency to the clients that you expect",
            )
        if self.min_kv_tokens < 0:
            raise BadInputError(f"--min-kv-tokens is {self.min_kv_tokens}", "give 0 or more")
        if self.chunk_tokens is not None and self.chunk_tokens < 1:
            raise BadInputError(f"--chunk is {self.chunk_tokens}", "give at least 1, or auto")
        if not 0 < self.gap < 1:
            raise BadInputError(f"--gap is {self.gap}", "give a share between 0 and 1, such as 0.005")
        if not 0 < self.time_limit_s < 1e6:
            raise BadInputError(f"--time-limit is {self.time_limit_s}", "give seconds above 0")


@dataclass(frozen=True)
class LevelSolution:
    """A level with its problem and the solver's answer."""

    level: Level
    problem: PlacementProblem
    solution: Solution

    def objective_us(self) -> float:
        """The level's objective; infinite without a plan."""
        return np.inf if self.solution.objective_us is None else self.solution.objective_us

    @property
    def hot(self) -> Mask:
        """The level's plan (bool [L, E])."""
        if self.solution.hot is None:
            raise InfeasibleError(f"no placement at level {self.level.settings}", "raise --time-limit")
        return self.solution.hot


@dataclass(frozen=True)
class FrontierPoint:
    """The best plan for a number of running requests.

    ``objective_us`` is of the plan on the solving steps and ``bound_us`` bounds every plan at ``settings``
    from below; ``prediction`` is on the reporting requests.
    """

    settings: ServerSettings
    hot_experts: int
    objective_us: float
    bound_us: float
    prediction: Prediction


@dataclass(frozen=True)
class Solved:
    """The decision and what it is worth.

    Attributes
    ----------
    hot
        bool [L, E], the returned placement; ``chosen`` names it ("plan" or the baseline that won).
    priority
        float [L, E], expected microseconds per decode step that an expert costs when cold; orders hot lists.
    objective_us, bound_us, gap
        Of the returned placement on the solving steps, and a bound over all levels of the grid but the
        ``levels_missed`` whose best plan misses the latency targets.
    prediction, baselines
        Figures on the reporting requests, same level and bytes.
    coverage
        Share of the reporting requests' selections that hot experts serve.
    sensitivity
        What every expert's place and the budget are worth at the placement; None without a trace.
    whole_layers
        What a decode step of the reporting requests pays for each layer all hot, and all cold.
    frontier
        One point per number of running requests, if it was asked for.
    held_out
        Whether the reporting requests are others than the solving ones; counts of one run can only be dealt out.
    convergence
        The numbers of steps that the level was solved on; None without a trace.
    gains
        What the placement gains over each baseline on the reporting requests; None without a trace.
    robust
        The worst domain, if the plan is made for it.
    """

    level: Level
    hot: Mask
    chosen: str
    priority: NDArray[np.float64]
    solver: str
    status: str
    objective_us: float | None
    bound_us: float | None
    gap: float | None
    seconds: float
    levels_solved: int
    levels_total: int
    prediction: Prediction
    baselines: dict[str, Prediction]
    baseline_masks: dict[str, Mask]
    coverage: float | None
    uniform_null: float
    extrapolated_share: float
    notes: tuple[str, ...]
    whole_layers: WholeLayers
    levels_missed: int = 0
    sensitivity: Sensitivity | None = None
    frontier: tuple[FrontierPoint, ...] = ()
    held_out: bool = True
    convergence: Convergence | None = None
    gains: Gains | None = None
    robust: Robust | None = None


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
    grid = levels(
        model,
        request.workload,
        tp=request.tp,
        budget_bytes=request.budget_bytes,
        max_running=request.max_running,
        min_kv_tokens=request.min_kv_tokens,
        kv_dtypes=request.kv_dtypes,
        chunk_tokens=request.chunk_tokens,
        # With pins, how many experts the limits keep hot is known only layer by layer (`_roomy`).
        min_hot_per_layer=max(request.min_hot_per_layer, 0 if request.pins else request.least_hot),
        min_hot_flag=MIN_FLAG if request.least_hot > request.min_hot_per_layer else "--min-hot",
        speculative=request.speculative,
        loss_bytes=request.loss_bytes,
        device_bytes=request.device_bytes,
    )
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
    limits = hot_bounds(model, request.pins, least=request.least_hot, most=request.most_hot)
    grid = _roomy(model, grid, limits, request)
    if request.mix:
        check_mix(trace, request.mix, requests=len(SPLIT_SHARES))
    names: tuple[str, ...] = ()
    left_out: dict[str, str] = {}
    if request.robust is not None:
        names, left_out = robust_domains(trace, request.mix)
    parts = split_requests(trace, SPLIT_SHARES, seed=request.seed)
    solving, choosing, reporting = (mixed(part, request.mix, request.seed) for part in parts)
    counts = selection_counts(solving)
    replays = Replays(solving, request.seed, request.prefill_from)
    choice = Replays(
        choosing, request.seed + EVALUATION_SEED, request.prefill_from, step_factor=EVALUATION_STEPS
    )

    tried: list[LevelSolution] = []
    bounds: dict[ServerSettings, float] = {}
    expected: Expectations = {}
    for number, level in enumerate(_promising_first(model, cost, grid, replays, counts, limits, request)):
        progress(
            f"level {number + 1} of {len(grid)}: {level.settings.max_running_requests} running requests, "
            f"chunk {level.settings.chunk_tokens}",
            0.8 * number / len(grid),
        )
        problem = _problem(model, cost, level, replays, expected, counts, limits, request)
        solution = _structured(
            problem, request, max(_LEVEL_GAP, request.gap), _frequency_plan(counts, level, limits)
        )
        if solution.bound_us is not None:
            bounds[level.settings] = solution.bound_us
        if solution.hot is not None:
            tried.append(LevelSolution(level, problem, solution))
    progress(f"proving the plan to {request.gap:.1%}", 0.8)
    tried = _refined(tried, bounds, request)
    progress("comparing levels", 0.9)
    best, missed = _first_within_targets(tried, model, cost, choice, choosing, request)
    if missed:
        # Levels that better ones seemed to rule out count again once those miss the targets.
        left = [entry for entry in tried if entry.level.settings not in missed]
        left = _refined(left, bounds, request)
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
            problem = _problem(model, cost, best.level, more, expected, counts, limits, request)
            last = entries[factor // 2].hot
            # The plan is asked for; its bound is raised below if the plan is taken.
            solution = _structured(problem, request, max(_LEVEL_GAP, request.gap), last)
            entries[factor] = LevelSolution(best.level, problem, solution)
        return choice_costs.output_token_us(entries[factor].hot)

    convergence = converge(choosing_us, most_factor=most_step_factor(best.problem.shape[0], counts.size))
    if convergence.used > 1:
        within = [entries[convergence.used], best]
        best, _ = _first_within_targets(within, model, cost, choice, choosing, request)
        bounds[best.level.settings] = best.solution.bound_us or -np.inf
        (best,) = _refined([best], bounds, request)
    if request.lp_path is not None:
        write_lp(best.problem, request.lp_path)
    if request.solver != "auto":
        best = _exact(best, request)
        bounds[best.level.settings] = max(bounds[best.level.settings], best.solution.bound_us or -np.inf)

    settings = best.level.settings
    masks: dict[str, Mask] = {
        "plan": best.hot,
        **{
            name: limits.baseline(place, counts, best.level.room_experts) for name, place in BASELINES.items()
        },
    }
    score: Callable[[Mask], float] = choice_costs.output_token_us
    search = None
    if request.robust is not None:
        domains = Domains(names, model, cost, best.level, request.workload, request.tp, request.prefill_from)

        def domain_problem(part: Trace, steps: Replays) -> PlacementProblem:
            return _problem(model, cost, best.level, steps, {}, selection_counts(part), limits, request)

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

    def figures(level: Level, mask: Mask) -> Prediction:
        here = level is best.level
        return predict(
            report_costs if here else report.costs(model, cost, level, request.workload, request.tp),
            mask,
            1.0 - coverage_of_mask(report_counts, mask),
            level.settings,
            request.workload,
            request.seed,
        )

    predictions = {name: figures(best.level, mask) for name, mask in masks.items()}
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
        priority=expected[StepKind.DECODE, settings.max_running_requests][1],
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
        frontier=_frontier(returned, tried, bounds, figures) if request.frontier else (),
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


def _roomy(
    model: ModelSpec, grid: tuple[Level, ...], limits: HotBounds, request: SolveRequest
) -> tuple[Level, ...]:
    """The levels that have room for the experts that pins and limits keep hot."""
    needed = int(limits.least.sum())
    roomy = tuple(level for level in grid if level.room_experts >= needed)
    if not roomy:
        raise _no_room(model, max(grid, key=lambda level: level.room_experts), limits, request)
    return roomy


def _no_room(model: ModelSpec, level: Level, limits: HotBounds, request: SolveRequest) -> InfeasibleError:
    """Says what keeps too many experts hot, and the smallest changes that would fit."""
    pinned = model.experts * sum(limits.pins.values())
    share = expert_share_bytes(model, request.tp)
    room, needed = level.room_experts, int(limits.least.sum())
    needed_bytes = needed * (share + repacking_bytes(model, share))
    enough = request.budget_bytes + needed_bytes - level.ledger.unused_bytes
    cures = []
    by = ["--pin"] if pinned else []
    if request.least_hot:
        by.append(f"{MIN_FLAG} {request.least_hot}")
        if room >= pinned:
            most = (room - pinned) // (len(limits.least) - len(limits.pins))
            cures.append(f"{MIN_FLAG} of at most {most}")
    cures += ["pin fewer layers"] if pinned else []
    cures.append(f"--hbm-budget of at least {enough}")
    return InfeasibleError(
        f"does not fit: {' and '.join(by)} keep{'s' if len(by) == 1 else ''} {needed:,} "
        f"experts hot, the budget has room for {room:,}",
        "any one of these fits: " + "; ".join(cures) if len(cures) > 1 else cures[0],
    )


def _frequency_plan(counts: NDArray[np.int64], level: Level, limits: HotBounds) -> Mask:
    return limits.baseline(BASELINES["frequency"], counts, level.room_experts)


def _frontier(
    chosen: LevelSolution,
    tried: list[LevelSolution],
    bounds: dict[ServerSettings, float],
    figures: Callable[[Level, Mask], Prediction],
) -> tuple[FrontierPoint, ...]:
    """The best level of every number of running requests; ``tried`` is sorted by objective.

    Latency targets may exclude the best level of the chosen number: there it is the chosen one.
    """
    best = {chosen.level.settings.max_running_requests: chosen}
    for entry in tried:
        best.setdefault(entry.level.settings.max_running_requests, entry)
    return tuple(
        FrontierPoint(
            settings=entry.level.settings,
            hot_experts=int(entry.hot.sum()),
            objective_us=entry.objective_us(),
            bound_us=bounds[entry.level.settings],
            prediction=figures(entry.level, entry.hot),
        )
        for _, entry in sorted(best.items())
    )


def _promising_first(
    model: ModelSpec,
    cost: CostModel,
    grid: tuple[Level, ...],
    replays: Replays,
    counts: NDArray[np.int64],
    limits: HotBounds,
    request: SolveRequest,
) -> list[Level]:
    """Levels by what the frequency ranking costs at them, so that later ones are cut off early."""

    def frequency_us(level: Level) -> float:
        costs = replays.costs(model, cost, level, request.workload, request.tp)
        return costs.output_token_us(_frequency_plan(counts, level, limits))

    return sorted(grid, key=frequency_us)


def _problem(
    model: ModelSpec,
    cost: CostModel,
    level: Level,
    replays: Replays,
    expected: Expectations,
    counts: NDArray[np.int64],
    limits: HotBounds,
    request: SolveRequest,
) -> PlacementProblem:
    """The level's problem, its sampled steps corrected to the whole of the solving requests."""
    settings = level.settings
    costs = replays.costs(model, cost, level, request.workload, request.tp)
    plan = _frequency_plan(counts, level, limits)
    linear_us = np.zeros(plan.shape)
    parts = [(costs.decode, 1.0 / costs.decode.tokens)]
    if costs.prefill is not None:
        parts.append((costs.prefill, costs.prefill_weight))
    for part, weight in parts:
        key = part.kind, part.tokens
        if key not in expected:
            expected[key] = expected_expert_us(cost, replays.whole(part.tokens, part.kind))
        linear_us += weight * sampling_correction(part, *expected[key], plan)
    return placement_problem(
        model,
        costs,
        room_experts=level.room_experts,
        tp=request.tp,
        linear_us=linear_us,
        name=f"R={settings.max_running_requests} C={settings.chunk_tokens} KV={settings.kv_dtype}",
        min_hot=limits.least,
        max_hot=limits.most,
    )


def _structured(
    problem: PlacementProblem, request: SolveRequest, gap: float, warm_start: Mask, *, prove: bool = False
) -> Solution:
    solution = solve_structured(
        problem,
        gap=gap,
        time_limit_s=request.time_limit_s,
        seed=request.seed,
        warm_starts=(warm_start,),
        prove=prove,
    )
    if solution.status is SolverStatus.INTERRUPTED:
        # The solver hands back what it has; a decision over levels that were never tried is none.
        raise KeyboardInterrupt
    return solution


def _refined(
    tried: list[LevelSolution], bounds: dict[ServerSettings, float], request: SolveRequest
) -> list[LevelSolution]:
    """Levels by objective, each that its bound does not rule out solved to ``request.gap``; raises ``bounds``."""
    entries = sorted(tried, key=LevelSolution.objective_us)
    for number, entry in enumerate(entries):
        best_us = min(other.objective_us() for other in entries)
        closed = entry.solution.gap is not None and entry.solution.gap <= request.gap
        if closed or bounds[entry.level.settings] >= best_us:
            continue
        solution = _structured(entry.problem, request, request.gap, entry.hot, prove=request.prove)
        entries[number] = replace(entry, solution=solution)
        bounds[entry.level.settings] = max(bounds[entry.level.settings], solution.bound_us or -np.inf)
    return sorted(entries, key=LevelSolution.objective_us)


def _exact(entry: LevelSolution, request: SolveRequest) -> LevelSolution:
    """The level solved again as one ILP by the solver that was asked for."""
    exact = solve_ilp(
        entry.problem,
        solver="highs" if request.solver == "highs" else "cbc",
        gap=request.gap,
        time_limit_s=request.time_limit_s,
    )
    if exact.hot is None:
        if exact.status is SolverStatus.INFEASIBLE:
            raise InfeasibleError("the ILP solver reports that no placement keeps the budget", "")
        raise BadInputError(
            f"{exact.solver} reached no plan in {request.time_limit_s:g} s (status: {exact.status.value})",
            "raise --time-limit, or use --solver auto",
        )
    return replace(entry, solution=exact)


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
