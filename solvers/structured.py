"""The default solver: a proven bound and a plan from the structure of the problem, in seconds.

Relaxing the budget alone separates the problem by layer; relaxing each max() as well separates the layers
by expert. The steps, each of which may end the solve by reaching the gap:

1. bound: the relaxation of budget and max(), closed by an interior-point method (`floors`);
2. plan: tabu search inside the layers at the bound's price, one placement per layer chosen under the
   budget (`tabu`, `layer_pool`);
3. bound: every layer-step's count of hot experts kept whole, where that promises to help (`envelope`);
4. plan: longer tabu and annealing runs, while they pay (`annealing`);
5. bound: experts decided by reduced cost, counts again over the open ones (`decided`);
6. both: the layers with the widest gap solved exactly at the price, max() kept exact (`exact_layer`);
7. both: what is left of a small problem, as one mixed-integer program (`ilp`);
8. both, where a proof is asked for: longer annealing and deeper branching in every layer, turn by turn, and
   step 3 whether or not it promises to help.

Every step has a fixed length and its own seeded random numbers, so that equal inputs give equal answers
unless the time limit cuts a step short. Where only the cold side of every layer-step matters and experts
are equal in bytes, the optimum is a sort by cost, and step 1 finds it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from placer.solvers.annealing import AnnealingLength, anneal
from placer.solvers.deadline import Deadline
from placer.solvers.decided import Decided
from placer.solvers.exact_layer import ExactLayer
from placer.solvers.floors import FloorBuilder, Floors
from placer.solvers.ilp import solve_ilp
from placer.solvers.layer_pass import layer_pass
from placer.solvers.layer_pool import LayerPool
from placer.solvers.layer_view import Float64s, by_layer
from placer.solvers.problem import Mask, PlacementProblem
from placer.solvers.quick_bound import quick_bound_us
from placer.solvers.repair import filled, repaired
from placer.solvers.side_sums import side_sums
from placer.solvers.solution import Solution, SolverStatus, relative_gap
from placer.solvers.solvable import can_be_feasible, check_costs
from placer.solvers.tabu import TabuLength, tabu_search

NAME = "structured"
QUICK = TabuLength(candidates=16, exchanges=60)
THOROUGH = TabuLength(candidates=24, exchanges=200)
ANNEALING = AnnealingLength(candidates=64, chains=4, turns=4000)
ANNEALING_ROUNDS = 6
WORTHWHILE = 0.03
"""Share of the open gap that a round of search must close for another to follow."""
NODES = (50, 1_000, 20_000)
"""Branch-and-bound nodes of a layer in each pass."""
LAYER_ENTRIES = 3_000
"""Costs of open experts over all steps up to which a layer is worth a branch and bound."""
JUDGED_AFTER, PAYING_SHARE = 4, 0.5
"""After so many layers a pass goes on if it closed this share of their gaps, or will come near the gap asked."""
PROOF_NODES = (30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
"""Branch-and-bound nodes of a layer in each turn of a proof that goes on to the time limit."""
PROOF_ANNEALING = AnnealingLength(candidates=256, chains=4, turns=16_000)
"""Its first annealing run; each one after that is twice as long."""
COUNTED_ENTRIES = 400_000
"""Steps x layers x experts up to which counting takes well under a second and is tried in any case."""
TINY_ENTRIES = 4_000
"""Steps x layers x experts up to which the whole problem goes to HiGHS at once."""
SMALL_ENTRIES = 60_000
"""Entries up to which it does when a gap is left at the end."""
TRIAL_S = 5.0
"""What HiGHS gets at the end in any case, or as long as all before it took; more only where that got it on."""


def solve_structured(
    problem: PlacementProblem,
    *,
    gap: float = 0.005,
    time_limit_s: float = 30.0,
    seed: int = 0,
    warm_starts: Sequence[Mask] = (),
    prove: bool = False,
    cutoff_us: float = np.inf,
) -> Solution:
    """Solve ``problem`` to a proven relative ``gap`` or until ``time_limit_s`` (wall clock) is over.

    Parameters
    ----------
    seed
        Seeds the searches; equal inputs and seeds give equal answers unless the time limit cuts in.
    warm_starts
        Placements (bool [L, E]) to start from, feasible or not; the answer is never worse than a
        feasible one among them.
    prove
        Whether to go on to the time limit where the gap is still open (step 8).
    cutoff_us
        An objective that another plan has: the solve ends once its bound shows that none of its own is below.

    Returns
    -------
    Solution
        Status OPTIMAL when the gap is proven, INFEASIBLE when the layers' minima alone exceed the
        budget, INTERRUPTED after Ctrl-C (with the best plan so far); otherwise the gap stands, because the
        time is over (TIME_LIMIT), or the bound reached the cutoff or no step is left that pays (SEARCHED).
        ``lp_us`` is the bound after step 1.

    Raises
    ------
    ValueError
        When a cost, charge or weight is negative or not finite.
    """
    deadline = Deadline(time_limit_s)
    check_costs(problem)
    if not can_be_feasible(problem):
        return Solution(NAME, SolverStatus.INFEASIBLE, None, None, None, None, deadline.elapsed_s())
    if np.isfinite(cutoff_us) and (bound_us := quick_bound_us(problem)) >= cutoff_us:
        for plan in (warm for warm in warm_starts if problem.is_feasible(warm)):
            objective_us = problem.objective_us(plan)
            gap = relative_gap(objective_us, bound_us, problem.constant_us)
            ended = SolverStatus.SEARCHED, plan, objective_us, min(bound_us, objective_us), gap
            return Solution(NAME, *ended, deadline.elapsed_s())
    solve = _Solve(problem, gap, seed, deadline, prove=prove, cutoff_us=cutoff_us)
    # The matrices are small: threads inside BLAS cost more than they bring, and far more on a busy machine.
    with threadpool_limits(limits=1, user_api="blas"):
        try:
            solve.start(warm_starts)
            solve.run()
        except KeyboardInterrupt:
            if solve.plan is None:
                return Solution(NAME, SolverStatus.NO_SOLUTION, None, None, None, None, deadline.elapsed_s())
            return solve.solution(SolverStatus.INTERRUPTED)
    if solve.proven():
        return solve.solution(SolverStatus.OPTIMAL)
    if solve.done():
        return solve.solution(SolverStatus.SEARCHED)
    return solve.solution(SolverStatus.TIME_LIMIT if deadline.passed() else SolverStatus.SEARCHED)


@dataclass
class _Proof:
    bound_us: float
    """Best bound so far, constant excluded."""
    relaxed_us: float | None = None


class _Solve:
    """The state of one solve: best plan, best bound, and the pool of layer placements."""

    def __init__(
        self,
        problem: PlacementProblem,
        gap: float,
        seed: int,
        deadline: Deadline,
        *,
        prove: bool = False,
        cutoff_us: float = np.inf,
    ) -> None:
        self.problem, self.gap, self.deadline, self.prove = problem, gap, deadline, prove
        self.cutoff_us = cutoff_us
        self.plan: Mask | None = None
        self.objective_us = np.inf
        self._rng = np.random.default_rng(seed)
        self._seed = seed
        self._proof = _Proof(-np.inf)

    def start(self, warm_starts: Sequence[Mask]) -> None:
        """Arrange the problem; take a first bound, a first plan and the warm starts."""
        self.view = by_layer(self.problem)
        self.builder = FloorBuilder(self.view, self.deadline, self.cutoff_us - self.problem.constant_us)
        self.floors = self.builder.trivial()
        self._prove(self.floors)
        L, _, E = self.view.shape
        self.sums = side_sums(self.view)
        self.pool = LayerPool(self.view)
        self.take(repaired(self.view, np.zeros((L, E), dtype=bool), self.floors.reduced_us))
        self.take(self._greedy(self.floors))
        for pure in (np.zeros((L, E), dtype=bool), np.ones((L, E), dtype=bool)):
            allowed = np.flatnonzero(self.view.may_be_hot if pure[0, 0] else self.view.may_be_cold)
            self.pool.add(allowed, pure[allowed], self.view.cost_us(pure)[allowed])
        for warm in warm_starts:
            self.take(repaired(self.view, np.asarray(warm, dtype=bool), self.floors.reduced_us))

    def run(self) -> None:
        """Go through the steps until the gap is proven, the time is up or nothing is left to try."""
        if self._cut_off():
            return
        self._relax()
        if self._cut_off():
            return
        # Worth its tenths of a second even where rounding the relaxation already meets the gap.
        self._search_quickly()
        if not self.done() and self.problem.hot_us.size <= TINY_ENTRIES:
            self._solve_whole(self.deadline.left_s())
        steps = [self._count, self._search_longer, self._solve_layers, self._solve_small]
        for step in [*steps, *([self._go_on] if self.prove else [])]:
            if self.done() or self.deadline.passed():
                return
            step()

    def done(self) -> bool:
        """Whether the gap asked for is proven, or that no plan is below the cutoff."""
        return self._cut_off() or self.proven()

    def _cut_off(self) -> bool:
        return self._bound_us() >= self.cutoff_us

    def proven(self) -> bool:
        """Whether the gap asked for is proven."""
        changeable = abs(self.objective_us - self.problem.constant_us)
        # Below this a difference is rounding in the objective itself.
        rounding = 1e-9 * max(changeable, float(self.view.magnitude_us.sum()) * 1e-3)
        return self.objective_us - self._bound_us() <= max(self.gap * changeable, rounding)

    def solution(self, status: SolverStatus) -> Solution:
        """The answer as it stands."""
        # A bound above the objective can only be rounding.
        bound = min(self._bound_us(), self.objective_us)
        relaxed = self._proof.relaxed_us
        return Solution(
            solver=NAME,
            status=status,
            hot=self.plan,
            objective_us=self.objective_us,
            bound_us=bound,
            gap=relative_gap(self.objective_us, bound, self.problem.constant_us),
            seconds=self.deadline.elapsed_s(),
            lp_us=None if relaxed is None else relaxed + self.problem.constant_us,
            price_us_per_byte=self.floors.price,
        )

    def take(self, plan: Mask | None) -> None:
        """Keep ``plan`` if it is feasible and the best; offer its layers to the pool."""
        if plan is None or not self.problem.is_feasible(plan):
            return
        self.pool.add_plan(plan)
        objective = self.problem.objective_us(plan)
        if objective < self.objective_us:
            self.plan, self.objective_us = plan.copy(), objective

    def _bound_us(self) -> float:
        return self._proof.bound_us + self.problem.constant_us

    def _prove(self, floors: Floors) -> None:
        self._proof.bound_us = max(self._proof.bound_us, floors.bound_us)

    def _greedy(self, floors: Floors) -> Mask:
        return filled(
            self.view, repaired(self.view, floors.reduced_us < 0, floors.reduced_us), floors.reduced_us
        )

    def _relax(self) -> None:
        self.floors = self.evaluated = self.builder.relaxed(self.floors, columns=False)
        self._prove(self.floors)
        self._proof.relaxed_us = self._proof.bound_us
        self.take(self._greedy(self.floors))

    def _search_quickly(self) -> None:
        self._tabu(self.floors.fraction > 0.5, QUICK)

    def _count(self) -> None:
        small = self.problem.hot_us.size <= COUNTED_ENTRIES
        if not (self.prove or small or self.builder.columns_promise()):
            return
        counted = self.builder.relaxed(self.floors, columns=True)
        if counted.bound_us > self.floors.bound_us:
            self.floors = self.evaluated = counted
            self._prove(counted)
            self.take(self._greedy(counted))
            if not self.done():
                self._tabu(counted.fraction > 0.5, QUICK)

    def _search_longer(self) -> None:
        self._tabu(self.pool.best_at(self.floors.price), THOROUGH)
        for _ in range(ANNEALING_ROUNDS):
            if self.done() or self.deadline.passed():
                return
            before = self.objective_us
            self._anneal()
            self._tabu(self.pool.best_at(self.floors.price), THOROUGH)
            if self.plan is not None:
                self._tabu(self.plan, QUICK)
            if before - self.objective_us < WORTHWHILE * (self.objective_us - self._bound_us()):
                return

    def _tabu(self, start: Mask, length: TabuLength) -> None:
        tabu_search(
            self.view,
            self.sums,
            self.pool,
            start,
            self.floors.reduced_us,
            self.floors.price,
            length,
            self._rng,
            self.deadline,
        )
        self.take(self.pool.choose(self.floors.price))

    def _go_on(self) -> None:
        """Anneal longer and, while that pays, branch deeper in every layer, turn by turn, until the time is over."""
        branching = True
        for turn, nodes in enumerate(PROOF_NODES):
            self._anneal(replace(PROOF_ANNEALING, turns=PROOF_ANNEALING.turns << turn))
            self._tabu(self.pool.best_at(self.floors.price), THOROUGH)
            cutoff = self.pool.floor_at(self.floors.price)
            if self.done() or self.deadline.passed() or not self._open_layers(cutoff).any():
                return
            if branching:
                decided = self.builder.decided(self.evaluated, cutoff)
                branching = self._solve_layers_at(decided, cutoff, nodes, all_layers=True)

    def _anneal(self, length: AnnealingLength = ANNEALING) -> None:
        price = self.floors.price
        anneal(
            self.view,
            self.sums,
            self.pool,
            self.pool.best_at(price),
            self.floors.reduced_us,
            price,
            self.pool.floor_at(price) - self.floors.layer_us,
            length,
            self._rng,
            self.deadline,
        )
        self.take(self.pool.choose(price))

    def _solve_layers(self) -> None:
        """Solve layers exactly: at the bound's price, then at the price that suits the plans found."""
        counted = self.prove or self.builder.columns_promise()
        for at_bound in (True, False):
            if not at_bound:
                price = self.pool.price(self.floors.price)
                if price == self.floors.price:
                    return
                self.floors = self.builder.at_price(price, columns=counted, floors=self.floors)
                self.evaluated = self.floors
            cutoff = self.pool.floor_at(self.floors.price)
            decided = self.builder.decided(self.floors, cutoff)
            if not counted and self.builder.columns_promise(decided) and not self.deadline.passed():
                self.floors, decided = self.builder.within(self.floors, decided, cutoff)
            self._prove(self.floors)
            for nodes in NODES:
                pays = self._solve_layers_at(decided, cutoff, nodes)
                if not pays or self.done() or self.deadline.passed():
                    return
            if self.plan is not None:
                self._tabu(self.plan, QUICK)

    def _solve_layers_at(
        self, decided: Decided, cutoff_us: Float64s, nodes: int, *, all_layers: bool = False
    ) -> bool:
        """One pass over the open layers, those with the fewest open experts first; whether it paid.

        Large layers are left out, and a pass that does not pay ends, unless ``all_layers`` are asked for.
        """
        best = self.pool.best_at(self.floors.price)
        active = (self.view.hot_us > 0) | (self.view.cold_us > 0)
        entries = (active & decided.free[:, None, :]).sum(axis=(1, 2))
        order = np.argsort(decided.free.sum(axis=1), kind="stable")
        order = order[(self._open_layers(cutoff_us) & (all_layers | (entries <= LAYER_ENTRIES)))[order]]
        if order.size == 0:
            # Nothing open is small enough on the first pass: exact layers are not the way here.
            return nodes > NODES[0]
        seen_us = closed_us = 0.0
        with layer_pass(
            self.view,
            self.floors,
            decided,
            best,
            order,
            gap_us=self._tolerance_us(),
            nodes=nodes,
            deadline=self.deadline,
        ) as answers:
            for turn, (layer, exact) in enumerate(answers, start=1):
                before = self.floors.layer_us[layer]
                self._use(layer, exact, float(cutoff_us[layer]), best[layer])
                seen_us += cutoff_us[layer] - before
                closed_us += self.floors.layer_us[layer] - before
                if self.done() or self.deadline.passed():
                    return True
                if (
                    not all_layers
                    and turn == JUDGED_AFTER
                    and not self._pays(closed_us / max(seen_us, 1e-12))
                ):
                    return False
        return True

    def _tolerance_us(self) -> float:
        """What a layer may leave open: a share of the gap asked for."""
        changeable = abs(self.objective_us - self.problem.constant_us)
        return 0.2 * self.gap * changeable / len(self.floors.layer_us) + 1e-9

    def _open_layers(self, cutoff_us: Float64s) -> Mask:
        return np.asarray(cutoff_us - self.floors.layer_us > self._tolerance_us())

    def _pays(self, share: float) -> bool:
        """Whether to go on with a pass that closes ``share`` of the gaps it works on."""
        target = self.gap * abs(self.objective_us - self.problem.constant_us)
        left = (1.0 - share) * (self.objective_us - self._bound_us())
        return share >= PAYING_SHARE or left <= 2.0 * target

    def _use(self, layer: int, exact: ExactLayer, cutoff_us: float, start: Mask) -> None:
        layer_us = self.floors.layer_us.copy()
        pure = self.builder.pure_at(self.floors.price)[layer]
        layer_us[layer] = max(layer_us[layer], min(exact.floor_us, cutoff_us, pure))
        self.floors = self.builder.with_layers(self.floors, layer_us)
        self._prove(self.floors)
        if exact.hot is not None and not np.array_equal(exact.hot, start):
            plan = self.pool.best_at(self.floors.price)
            plan[layer] = exact.hot
            self.pool.add_plan(plan)
            self.take(self.pool.choose(self.floors.price))

    def _solve_small(self) -> None:
        """Give a small problem to HiGHS, and all the time that is left only where a trial closes some of the gap."""
        if not TINY_ENTRIES < self.problem.hot_us.size <= SMALL_ENTRIES:
            return
        left_s = self.deadline.left_s()
        trial_s = left_s if self.prove else min(left_s, max(TRIAL_S, self.deadline.elapsed_s()))
        open_us = self.objective_us - self._bound_us()
        self._solve_whole(trial_s)
        closed_us = open_us - (self.objective_us - self._bound_us())
        if not self.done() and not self.deadline.passed() and closed_us >= WORTHWHILE * open_us:
            self._solve_whole(self.deadline.left_s())

    def _solve_whole(self, seconds: float) -> None:
        whole = solve_ilp(self.problem, solver="highs", gap=self.gap, time_limit_s=seconds)
        self.take(whole.hot)
        if whole.bound_us is not None:
            self._proof.bound_us = max(self._proof.bound_us, whole.bound_us - self.problem.constant_us)
