"""Whether a problem's numbers and bounds make sense before any solver runs."""

import numpy as np

from placer.solvers.problem import FixedCharge, PlacementProblem


def can_be_feasible(problem: PlacementProblem) -> bool:
    """Whether any placement keeps the layers' bounds and the budget."""
    E = problem.shape[2]
    least = np.clip(problem.min_hot, 0, None)
    if np.any(least > np.clip(problem.max_hot, None, E)):
        return False
    return int((problem.expert_bytes * least).sum()) <= problem.budget_bytes


def check_costs(problem: PlacementProblem) -> None:
    """Raise ValueError when a cost, charge, weight or factor is not finite, or below what `PlacementProblem` allows."""
    signed = problem.hot_fixed_when is not FixedCharge.ANY_ACTIVE
    for name in ("hot_us", "cold_us", "hot_fixed_us", "cold_fixed_us", "weight", "heaviest_factor"):
        values = getattr(problem, name)
        if values is None:
            continue
        if not np.all(np.isfinite(values)) or (
            np.any(values < 0) and not (signed and name == "hot_fixed_us")
        ):
            raise ValueError(f"{name} holds negative or non-finite values")
    if not np.all(np.isfinite(problem.linear_us)):
        raise ValueError("linear_us holds non-finite values")
    if np.any(problem.expert_bytes <= 0):
        raise ValueError("expert_bytes must be positive")
