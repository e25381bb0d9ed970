"""Exact dynamic program for the special case in which only the number of hot experts of a layer counts."""

import numpy as np

from placer.solvers.deadline import Deadline
from placer.solvers.layer_view import Float64s
from placer.solvers.problem import PlacementProblem
from placer.solvers.solution import Solution, SolverStatus

NAME = "count_dp"


def solve_count_dp(problem: PlacementProblem) -> Solution:
    """Solve a problem whose experts are alike within every layer, to optimality.

    With alike experts a layer is its count n, and the problem is a multiple-choice knapsack: cost[l, n]
    against n expert_bytes, solved over byte units (the greatest common divisor of the expert bytes). It
    shares no code with the other solvers and serves as their reference.

    Raises
    ------
    ValueError
        When the experts of some layer differ in a cost or in the linear term.
    """
    deadline = Deadline(np.inf)
    _, L, E = problem.shape
    for costs in (problem.hot_us, problem.cold_us, problem.linear_us[None]):
        if np.any(costs != costs[:, :, :1]):
            raise ValueError("the experts of a layer differ: a count does not decide its cost")
    cost = _cost_by_count(problem)
    unit = int(np.gcd.reduce(problem.expert_bytes))
    step = problem.expert_bytes // unit
    cells = min(problem.budget_bytes, int((problem.expert_bytes * E).sum())) // unit + 1
    table = np.zeros(max(cells, 0))
    taken = np.zeros((L, len(table)), dtype=np.int64)
    for layer in range(L):
        best = np.full(len(table), np.inf)
        for n in range(E + 1):
            used = n * int(step[layer])
            if used >= cells or not np.isfinite(cost[layer, n]):
                continue
            value = table[: cells - used] + cost[layer, n]
            better = np.flatnonzero(value < best[used:])
            best[used + better] = value[better]
            taken[layer, used + better] = n
        table = best
    if len(table) == 0 or not np.isfinite(table[-1]):
        return Solution(NAME, SolverStatus.INFEASIBLE, None, None, None, None, deadline.elapsed_s())
    hot = np.zeros((L, E), dtype=bool)
    cell = len(table) - 1
    for layer in reversed(range(L)):
        n = int(taken[layer, cell])
        hot[layer, :n] = True
        cell -= n * int(step[layer])
    objective = problem.objective_us(hot)
    return Solution(NAME, SolverStatus.OPTIMAL, hot, objective, objective, 0.0, deadline.elapsed_s())


def _cost_by_count(problem: PlacementProblem) -> Float64s:
    """Cost of every layer by its number of hot experts: float64 [L, E + 1], +inf outside its bounds."""
    _, L, E = problem.shape
    cost = np.full((L, E + 1), np.inf)
    for n in range(E + 1):
        hot = np.zeros((L, E), dtype=bool)
        hot[:, :n] = True
        by_layer = problem.weight @ problem.step_us(hot) + problem.linear_us[:, :n].sum(axis=1)
        allowed = (n >= problem.min_hot) & (n <= problem.max_hot)
        cost[allowed, n] = by_layer[allowed]
    return cost
