"""What a solver returns: a placement, its objective and a bound that is proven."""

from dataclasses import dataclass
from enum import StrEnum

from placer.solvers.problem import Mask


class SolverStatus(StrEnum):
    """How a solve ended; only the first four carry a placement."""

    OPTIMAL = "optimal"
    """The gap asked for is proven."""
    TIME_LIMIT = "time_limit"
    """Out of time; the placement is the best found and the gap stands."""
    SEARCHED = "searched"
    """Every step of the solver is done; the placement is the best found and the gap stands."""
    INTERRUPTED = "interrupted"
    """Stopped by the user; the placement is the best found and the gap stands."""
    INFEASIBLE = "infeasible"
    """Proven that no placement keeps the budget and the layer bounds."""
    NO_SOLUTION = "no_solution"
    """Nothing usable was reached (out of time before a first placement, unbounded, or an error)."""


@dataclass(frozen=True)
class Solution:
    """A solver's answer.

    Attributes
    ----------
    hot
        bool [L, E], or None where the status carries no placement.
    objective_us, bound_us
        Objective of ``hot`` and a proven lower bound, both with the problem's constant.
    gap
        (objective - bound) / |objective - constant|: the share of the changeable part that is unproven.
    seconds
        Wall time.
    lp_us
        Value of the relaxation that the solver closed first, or None.
    price_us_per_byte
        Multiplier of the budget at the bound: what one more byte is worth, to first order; or None.
    """

    solver: str
    status: SolverStatus
    hot: Mask | None
    objective_us: float | None
    bound_us: float | None
    gap: float | None
    seconds: float
    lp_us: float | None = None
    price_us_per_byte: float | None = None


_ROUNDING = 1e-9
"""Share of the constant that may be lost to rounding and to solvers' tolerances."""


def relative_gap(objective_us: float, bound_us: float, constant_us: float) -> float:
    """Gap on the part of the objective that a placement can change (never below 0).

    That part may be negative where linear terms reward hot experts; its size counts. Where it is zero and
    the bound is not reached, all of it is unproven: 1. What is lost by adding the constant is no gap.
    """
    changeable = abs(objective_us - constant_us)
    unproven = max(0.0, objective_us - bound_us)
    if unproven <= _ROUNDING * abs(constant_us):
        return 0.0
    if changeable == 0:
        return 1.0 if unproven > 0 else 0.0
    return unproven / changeable
