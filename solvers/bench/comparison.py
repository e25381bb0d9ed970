"""At equal time: what the structured solver had found, and what HiGHS had."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placer.solvers.bench.solver_run import SolverRun
from placer.solvers.bench.trajectory import Milestone, at_limit

LIMITS_S = (5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Limits at which objectives are compared."""


@dataclass(frozen=True)
class ComparisonRow:
    """One instance at one limit.

    Attributes
    ----------
    first_us
        What the structured solver found within the first of `LIMITS_S`.
    structured_us
        What it found in its longest run that kept the limit.
    highs_us, highs_bound_us
        What HiGHS held at the limit.
    recorded
        Whether HiGHS's figures come from a recorded run, and not from one just made.
    """

    name: str
    limit_s: float
    first_us: float | None
    structured_us: float | None
    highs_us: float | None
    highs_bound_us: float | None
    recorded: bool

    @property
    def never_worse(self) -> bool:
        """Whether the structured solver's placement is at least as good as HiGHS's, or HiGHS has none."""
        if self.highs_us is None:
            return True
        return self.structured_us is not None and self.structured_us <= self.highs_us * (1 + 1e-9)


def comparison(
    name: str,
    runs: Mapping[float, SolverRun],
    highs: Sequence[Milestone],
    *,
    cpu: bool,
    until_s: float,
    recorded: bool,
) -> list[ComparisonRow]:
    """One row for each of `LIMITS_S` up to ``until_s``; for a run that is no record, one for its end too.

    Parameters
    ----------
    runs
        The structured solver's runs by their limit in seconds.
    highs
        HiGHS's milestones, read by CPU time if ``cpu`` and by the wall clock otherwise.
    """
    limits = [limit for limit in LIMITS_S if limit <= until_s]
    if not recorded and until_s not in limits:
        limits.append(until_s)

    def ended(limit_s: float) -> float:
        """A solver looks at its clock now and then: what it found until it stopped counts at the last limit."""
        return math.inf if not recorded and limit_s == until_s else limit_s

    return [
        ComparisonRow(
            name=name,
            limit_s=limit,
            first_us=_best_within(runs, LIMITS_S[0]),
            structured_us=_best_within(runs, limit),
            highs_us=None if (held := at_limit(highs, ended(limit), cpu=cpu)) is None else held.objective_us,
            highs_bound_us=None if held is None else held.bound_us,
            recorded=recorded,
        )
        for limit in limits
    ]


def _best_within(runs: Mapping[float, SolverRun], limit_s: float) -> float | None:
    found = [
        run.objective_us for limit, run in runs.items() if limit <= limit_s and run.objective_us is not None
    ]
    return min(found, default=None)
