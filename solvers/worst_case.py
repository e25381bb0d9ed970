"""One placement for several problems at once: the largest of their objectives is made small, with a bound.

    min_x max_d value_d(x),   value_d(x) = objective_d(x) / scale_d

For any weights λ in the simplex, min_x Σ_d λ_d value_d(x) is at most that, and is a placement problem itself: its
steps are those of all problems, weighted. So every solve yields a plan and a bound. The next weights are those at
which the plans found so far are worst together (Kelley's cutting planes on the Lagrangian dual, J. SIAM 8, 1960):
a linear program with a row per plan.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from placer.solvers.problem import Mask, PlacementProblem
from placer.solvers.solution import SolverStatus
from placer.solvers.structured import solve_structured

_MOST_ROUNDS = 24
_SMOOTHING = 0.5
"""Share of the best weights so far in the next ones: cutting planes alone jump between corners."""


@dataclass(frozen=True)
class WorstCase:
    """The placement that was found, and what is proven.

    Attributes
    ----------
    hot
        bool [L, E].
    values
        By problem name: objective over scale under ``hot``.
    weights
        By problem name: the weights at which the bound was proven; they sum to 1.
    bound
        No placement has a smaller largest value.
    interrupted
        Whether Ctrl-C ended the search.
    """

    hot: Mask
    values: dict[str, float]
    weights: dict[str, float]
    bound: float
    rounds: int
    seconds: float
    interrupted: bool = False

    @property
    def value(self) -> float:
        """The largest value."""
        return max(self.values.values())

    @property
    def gap(self) -> float:
        """Share of the largest value that is not proven."""
        return max(0.0, self.value - self.bound) / abs(self.value) if self.value else 0.0


def solve_worst_case(
    problems: Mapping[str, PlacementProblem],
    scale: Mapping[str, float],
    *,
    gap: float,
    time_limit_s: float,
    seed: int = 0,
    warm_starts: Sequence[Mask] = (),
) -> WorstCase:
    """Make the largest of the ``problems``' objectives, each over its ``scale``, small.

    The problems share layers, experts, bytes and limits. ``warm_starts`` are placements (bool [L, E]) that the
    answer is never worse than, where they are feasible.

    Raises
    ------
    ValueError
        When there is no problem, a scale is not positive, or no feasible placement is found.
    """
    started = time.monotonic()
    names = list(problems)
    if not names or min(scale[name] for name in names) <= 0:
        raise ValueError("a worst case needs a problem, and positive scales")
    scales = np.array([scale[name] for name in names])
    first = problems[names[0]]
    plans: list[Mask] = [mask for mask in warm_starts if first.is_feasible(mask)]
    values = [_values(problems, scales, plan) for plan in plans]
    weights = best_weights = np.full(len(names), 1.0 / len(names))
    bound, rounds, interrupted = -np.inf, 0, False
    while rounds < _MOST_ROUNDS:
        left_s = time_limit_s - (time.monotonic() - started)
        if rounds and (left_s <= 0 or _closed(values, bound, gap)):
            break
        solution = solve_structured(
            _weighted(problems, weights / scales),
            gap=gap / 2,
            time_limit_s=max(left_s, 0.1),
            seed=seed,
            warm_starts=plans[-1:],
        )
        rounds += 1
        if solution.bound_us is not None and solution.bound_us > bound:
            bound, best_weights = solution.bound_us, weights
        if solution.hot is not None:
            plans.append(solution.hot)
            values.append(_values(problems, scales, solution.hot))
        if solution.status is SolverStatus.INTERRUPTED:
            interrupted = True
            break
        if not plans:
            break
        worst, reachable = _worst_weights(np.array(values))
        if reachable - bound <= gap / 2 * abs(reachable):
            # No weights prove more: what is left is between one plan and a mixture of plans.
            break
        weights = _SMOOTHING * best_weights + (1.0 - _SMOOTHING) * worst
    if not plans:
        raise ValueError("no placement keeps the budget")
    best = int(np.argmin([value.max() for value in values]))
    return WorstCase(
        hot=plans[best],
        values=dict(zip(names, values[best].tolist(), strict=True)),
        weights=dict(zip(names, best_weights.tolist(), strict=True)),
        bound=min(bound, float(values[best].max())),
        rounds=rounds,
        seconds=time.monotonic() - started,
        interrupted=interrupted,
    )


def _closed(values: list[NDArray[np.float64]], bound: float, gap: float) -> bool:
    least = min(float(value.max()) for value in values)
    return least - bound <= gap * abs(least)


def _values(
    problems: Mapping[str, PlacementProblem], scales: NDArray[np.float64], hot: Mask
) -> NDArray[np.float64]:
    return np.array([problem.objective_us(hot) for problem in problems.values()]) / scales


def _worst_weights(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Weights at which the best of the plans is worst, float [D] from the plans' values [plans, D], and its value
    there: no bound is above it."""
    plans, D = values.shape
    # max v with v - values · λ <= 0 for every plan, λ in the simplex; variables are λ, v.
    found = linprog(
        c=np.append(np.zeros(D), -1.0),
        A_ub=np.hstack([-values, np.ones((plans, 1))]),
        b_ub=np.zeros(plans),
        A_eq=np.append(np.ones(D), 0.0)[None],
        b_eq=np.ones(1),
        bounds=[(0.0, 1.0)] * D + [(None, None)],
        method="highs",
    )
    weights = np.clip(found.x[:D], 0.0, None)
    return np.asarray(weights / weights.sum()), float(found.x[D])


def _weighted(problems: Mapping[str, PlacementProblem], weights: NDArray[np.float64]) -> PlacementProblem:
    """Σ_d weights_d · problem_d as one problem, whose steps are those of all; those of no weight are left out."""
    chosen = [
        (problem, float(weight))
        for problem, weight in zip(problems.values(), weights, strict=True)
        if weight > 0
    ]
    first = chosen[0][0]

    def stacked(field: str) -> NDArray[np.float64]:
        return np.concatenate([getattr(problem, field) for problem, _ in chosen])

    return replace(
        first,
        hot_us=stacked("hot_us"),
        cold_us=stacked("cold_us"),
        hot_fixed_us=stacked("hot_fixed_us"),
        cold_fixed_us=stacked("cold_fixed_us"),
        cold_idle_us=None if first.cold_idle_us is None else stacked("cold_idle_us"),
        heaviest_factor=None if first.heaviest_factor is None else stacked("heaviest_factor"),
        weight=np.concatenate([weight * problem.weight for problem, weight in chosen]),
        linear_us=np.sum([weight * problem.linear_us for problem, weight in chosen], axis=0),
        constant_us=sum(weight * problem.constant_us for problem, weight in chosen),
        name="worst case",
    )
