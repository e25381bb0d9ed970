"""What a general ILP solver is asked and what it answers."""

from collections.abc import Callable
from dataclasses import dataclass

from placer.solvers.bench.trajectory import Milestone
from placer.solvers.problem import Mask
from placer.solvers.solution import SolverStatus

RIVALS = ("highs", "cbc")
"""General ILP solvers that an instance can be given to."""


@dataclass(frozen=True)
class RivalAnswer:
    """How far a rival came.

    Attributes
    ----------
    level, hot
        The level it chose and the placement (bool [L, E]); None where it had none.
    bound_us
        Its proven lower bound, or None.
    lp_us
        Value of its program's linear relaxation before cuts, or None.
    milestones
        Every change of placement or bound that it told of, in order of time.
    """

    status: SolverStatus
    level: int | None
    hot: Mask | None
    bound_us: float | None
    lp_us: float | None
    milestones: tuple[Milestone, ...]


Finish = Callable[[RivalAnswer], None]
"""Told the answer when the time is over; does not return."""
