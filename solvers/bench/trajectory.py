"""What a solver held at which second: its best placement's objective and its bound."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Milestone:
    """The state of a solve from ``seconds`` on (wall clock; ``cpu_seconds`` is the solver's own CPU time)."""

    seconds: float
    cpu_seconds: float
    objective_us: float | None
    bound_us: float | None


def at_limit(milestones: Sequence[Milestone], limit_s: float, *, cpu: bool) -> Milestone | None:
    """The last of ``milestones`` (in order of time) within ``limit_s`` of wall clock or CPU time."""
    within = [one for one in milestones if (one.cpu_seconds if cpu else one.seconds) <= limit_s]
    return within[-1] if within else None
