"""The best plan whose simulated latencies keep the targets, over levels and over plans that weigh latency more.

Every level's own plan is tried first. Where it misses a target, the target's limit on mean times (`placer.objective`)
gets a price: the plan of the limit alone, then prices between that and none, since the least that suffices costs the
objective least. What is tightened is always judged by the simulated 95th percentile.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placer.choosing import Candidate, Choosing
from placer.hbm import ServerSettings
from placer.level import Level
from placer.level_cost import several_end
from placer.level_problems import LevelProblems
from placer.level_solution import LEVEL_GAP, Emphasis, LevelSolution, solve_level
from placer.objective import Limit, Objective, limits_of, stopped_share
from placer.profiler.serving.server import Scheduler
from placer.solvers.ilp import solve_ilp
from placer.solvers.solution import SolverStatus
from placer.targets import has_targets, missed_flags, p95_ms

_PRICE_SOLVES = 5
"""Prices that are tried, of 1 first: what the limit's decode (or prompt) time weighs beside the objective's."""
_PRICE_STEP = 16.0
"""Factor to the next price where none between is known to suffice, or not to."""
EXACT_ENTRIES = 40_000
"""Steps x layers x experts up to which the limit is also put into the exact program."""
_TIGHTENINGS = 6
"""Exact programs that are solved, each with the limit tightened by what the simulation exceeds the target."""
_SIMULATION_MARGIN = 0.05
"""Share by which a simulated figure may lie below what mean times on other steps say."""


@dataclass
class TargetSearch:
    """Searches levels for the best plan; notes which settings were found to miss the targets.

    Attributes
    ----------
    bounds
        By settings, what no plan within the targets' limits has an objective below; raised by the search.
    missed
        Settings of which no plan that was tried keeps the targets.
    excluded
        Those of them at which no plan can: the bound on a limit's mean time exceeds its target.
    priced
        Whether a price on a limit raised a bound, which then holds for plans within the limit.
    """

    problems: LevelProblems
    choosing: Choosing
    bounds: dict[ServerSettings, float]
    missed: set[ServerSettings]
    excluded: set[ServerSettings]
    progress: Callable[[str], None]
    priced: bool = False

    def best(self, tried: Sequence[LevelSolution]) -> LevelSolution | None:
        """The best of the levels ``tried``, by the request's objective, that serves; None when none does."""
        objective = self.problems.request.objective
        if objective is Objective.THROUGHPUT and not has_targets(self.problems.request.workload):
            return min(tried, key=LevelSolution.objective_us)
        best: LevelSolution | None = None
        value: Candidate | None = None
        served: set[ServerSettings] = set()
        for entry in sorted(tried, key=LevelSolution.objective_us):
            settings = entry.level.settings
            if value is not None and self._ruled_out(entry, value):
                continue
            self.missed.add(settings)
            for plan in self._plans(entry):
                if not self.choosing.serves(plan.level, plan.hot):
                    continue
                served.add(settings)
                candidate = Candidate(self.choosing.figures(plan.level, plan.hot), plan.objective_us())
                if value is None or candidate.better_than(value, objective):
                    best, value = plan, candidate
        self.missed -= served
        return best

    def notes(self, best: LevelSolution) -> list[str]:
        """Over which plans the bound holds, and why ``best`` is not its level's own plan."""
        request, missed = self.problems.request, self.missed - {best.level.settings}
        notes = []
        if best.emphasis is not None:
            notes.append(
                "the plan weighs latency more than the objective does "
                f"({best.emphasis.weighting}), so that the targets are kept"
            )
        if missed:
            proven = len(missed & self.excluded)
            how = f" ({proven} of them provably)" if proven else ""
            notes.append(
                f"bound and gap are over the settings that meet the targets: {len(missed)} whose best plan misses them "
                f"{'is' if len(missed) == 1 else 'are'} left out{how}"
            )
        if self.priced and request.objective is not Objective.GOODPUT:
            notes.append(
                "the bound is over the plans whose mean TPOT and prompt time, on the solving steps and without queues, "
                "keep the targets"
            )
        if request.objective is Objective.GOODPUT:
            notes.append(
                "goodput is searched by simulation among plans for throughput and for the targets; the bound is on "
                "throughput, which goodput cannot exceed"
            )
        return notes

    def serving(self, plans: Sequence[LevelSolution]) -> LevelSolution:
        """The first of ``plans`` that serves; the last where none does."""
        return next((plan for plan in plans if self.choosing.serves(plan.level, plan.hot)), plans[-1])

    def _ruled_out(self, entry: LevelSolution, best: Candidate) -> bool:
        """Whether the level's bound says that no plan of it is better than ``best``."""
        request = self.problems.request
        bound_us = self.bounds.get(entry.level.settings, -np.inf)
        if request.objective is Objective.THROUGHPUT:
            return bound_us >= best.objective_us
        if bound_us <= 0:
            return False
        bound_us *= 1.0 - _SIMULATION_MARGIN
        if request.objective is Objective.LATENCY:
            return self._bounded(entry.level) and bound_us > best.figures.tpot_ms_p95 * 1e3
        least = request.scheduler is Scheduler.SGLANG and not request.behaviour.deferred_experts
        return least and 1e6 / bound_us < (best.figures.goodput_tokens_per_s or 0.0)

    def _plans(self, entry: LevelSolution) -> Iterator[LevelSolution]:
        """The level's own plan; where requests miss a target, plans that weigh it more, then the frequency ranking."""
        yield entry
        workload = self.problems.request.workload
        figures = self.choosing.figures(entry.level, entry.hot)
        flags = missed_flags(workload, figures)
        if entry.emphasis is not None or not flags:
            return
        known = self.problems.request.prefill_from != "none"
        limits = limits_of(workload, entry.level.settings.max_running_requests, prompts_known=known)
        if any(self._cannot_keep(entry, limit) for limit in limits):
            self.excluded.add(entry.level.settings)
            limits = ()
        objective = self.problems.weighed(entry.level)
        for limit in limits:
            if limit.flag in flags and limit.weighting != objective:
                yield from self._emphasised(entry, limit)
        if limits:
            yield from self._exact(entry, limits)
        frequency = self.problems.baseline("frequency", entry.level)
        yield entry.with_plan(frequency)

    def _cannot_keep(self, entry: LevelSolution, limit: Limit) -> bool:
        """Whether the bound on the objective alone puts ``limit`` out of reach (no more solving is needed)."""
        if not self._bounded(entry.level) or not entry.solution.bound_us:
            return False
        times = limit.weighting.over(self.problems.weighed(entry.level))
        return times * entry.solution.bound_us > self._out_of_reach_us(entry.level, limit)

    def _emphasised(self, entry: LevelSolution, limit: Limit) -> Iterator[LevelSolution]:
        """Plans for ``limit`` alone, and for the least price of it that keeps the targets."""
        settings = entry.level.settings
        self.progress(
            f"another plan at {settings.max_running_requests} running requests, chunk {settings.chunk_tokens}, "
            f"for {limit.flag}"
        )
        # Once its bound is above the target there is nothing left to find out.
        bounded, most_us = self._bounded(entry.level), self._out_of_reach_us(entry.level, limit)
        cutoff_us = float(np.nextafter(most_us, np.inf)) if bounded else np.inf
        alone = self._solved(entry, limit, np.inf, cutoff_us=cutoff_us)
        bound_us = alone.solution.bound_us
        if bounded and bound_us is not None and bound_us > most_us:
            self.excluded.add(settings)
        yield alone
        if not self._keeps(alone, limit):
            return
        low, high = 0.0, np.inf
        for _ in range(_PRICE_SOLVES):
            price = _between(low, high)
            plan = self._solved(entry, limit, price)
            yield plan
            low, high = (low, price) if self._keeps(plan, limit) else (price, high)

    def _exact(self, entry: LevelSolution, limits: Sequence[Limit]) -> Iterator[LevelSolution]:
        """Small levels: the objective's best plan within ``limits``, tightened until the simulated targets are kept."""
        request, own = self.problems.request, entry.problem
        if own.hot_us.size > EXACT_ENTRIES:
            return
        means = [self.problems.problem(entry.level, limit.weighting) for limit in limits]
        found = [
            self.problems.time_limit(entry.level, limit, mean)
            for limit, mean in zip(limits, means, strict=True)
        ]
        rows = [row for row in found if row is not None]
        if len(rows) < len(limits):
            return
        for turn in range(_TIGHTENINGS):
            solution = solve_ilp(
                own, solver="highs", gap=request.gap, time_limit_s=request.time_limit_s, limits=rows
            )
            if turn == 0 and self._bounded(entry.level) and solution.bound_us is not None:
                self._raise_bound(entry.level.settings, solution.bound_us)
            if solution.hot is None:
                proven = self._bounded(entry.level) and not self._share_chunks(entry.level)
                if turn == 0 and proven and solution.status is SolverStatus.INFEASIBLE:
                    self.excluded.add(entry.level.settings)
                for limit in limits if turn == 0 and len(limits) > 1 else ():
                    # What each target alone costs the other.
                    yield from self._exact(entry, (limit,))
                return
            plan = entry.with_plan(solution.hot)
            yield plan
            if self._keeps(plan):
                return
            figures = self.choosing.figures(plan.level, plan.hot)
            for number, (limit, mean) in enumerate(zip(limits, means, strict=True)):
                exceeded = p95_ms(limit.flag, figures) * 1e3 / limit.target_us
                if exceeded > 1.0:
                    most_us = mean.objective_us(plan.hot) / exceeded - mean.constant_us
                    rows[number] = replace(rows[number], most_us=most_us)

    def _out_of_reach_us(self, level: Level, limit: Limit) -> float:
        """What a bound on the mean time of ``limit`` must exceed before no plan at ``level`` can keep it.

        Prompts that share chunks stop a request less often than the mean counts.
        """
        if limit.flag != "--slo-tpot" or not self._share_chunks(level):
            return limit.target_us
        running, workload = level.settings.max_running_requests, self.problems.request.workload
        return limit.target_us / stopped_share(running, workload)

    def _share_chunks(self, level: Level) -> bool:
        """Whether two prompts that start together may take fewer steps than each alone."""
        settings, prompt = level.settings, self.problems.request.workload.computed_prompt_tokens
        return settings.max_running_requests > 1 and prompt % settings.chunk_tokens > 0

    def _bounded(self, level: Level) -> bool:
        """Whether limits on mean times say something of every plan that is looked for at ``level``.

        In an open loop fewer requests may run than the level allows, mixed steps read experts once for both kinds of
        tokens, and deferred experts are no part of the objective; goodput need not keep the targets. Of short answers
        several end in a step, and the prompts that follow are computed together.
        """
        request = self.problems.request
        return (
            request.objective is not Objective.GOODPUT
            and not request.workload.is_open_loop
            and request.scheduler is Scheduler.SGLANG
            and not request.behaviour.deferred_experts
            and not several_end(level.settings, request.workload)
        )

    def _keeps(self, plan: LevelSolution, limit: Limit | None = None) -> bool:
        """Whether the plan keeps every target, or that of ``limit``."""
        figures = self.choosing.figures(plan.level, plan.hot)
        flags = missed_flags(self.problems.request.workload, figures)
        return not flags if limit is None else limit.flag not in flags

    def _solved(
        self, entry: LevelSolution, limit: Limit, price: float, *, cutoff_us: float = np.inf
    ) -> LevelSolution:
        """The level with ``price`` on ``limit``, infinite for the limit alone; ends at a bound of ``cutoff_us``."""
        request, objective = self.problems.request, self.problems.weighed(entry.level)
        if np.isinf(price):
            weighting, credit_us = limit.weighting, None
        else:
            price /= max(limit.weighting.decode, limit.weighting.prefill)
            weighting, credit_us = objective.plus(limit.weighting, price), price * limit.target_us
        problem = self.problems.problem(entry.level, weighting)
        gap = max(LEVEL_GAP, request.gap)
        solution = solve_level(problem, request, gap, entry.hot, cutoff_us=cutoff_us)
        plan = LevelSolution(entry.level, entry.problem, solution, Emphasis(weighting, problem, credit_us))
        if self._bounded(entry.level):
            self._raise_bound(entry.level.settings, plan.bound_us)
        return plan

    def _raise_bound(self, settings: ServerSettings, bound_us: float) -> None:
        """``bound_us`` holds within the targets' limits."""
        if bound_us > self.bounds.get(settings, -np.inf):
            self.bounds[settings] = bound_us
            self.priced = True


def _between(low: float, high: float) -> float:
    """The next price: half-way in factors between one that is too low and one that suffices."""
    if low == 0.0:
        return 1.0 if np.isinf(high) else high / _PRICE_STEP
    return low * _PRICE_STEP if np.isinf(high) else float(np.sqrt(low * high))
