"""Whether a level was solved on enough steps: more of them must not change the time on requests kept for choosing."""

from collections.abc import Callable
from dataclasses import dataclass

CONVERGED = 0.002
"""Change of the time per output token below which more steps are said to bring nothing."""
MOST_FACTOR = 8
"""Times the first number of steps at which the search for convergence ends."""
_MOST_ENTRIES = 16_000_000
"""Costs [S, L, E] of a level up to which its steps are doubled."""


@dataclass(frozen=True)
class Convergence:
    """The numbers of steps that a level was solved on, and what each plan was worth.

    Attributes
    ----------
    factors
        Multiples of the first number of steps, each twice the one before.
    choosing_us
        Time per output token of the plan made at each, on the requests kept for choosing.
    used
        The factor whose plan is taken: the first within `CONVERGED` of the best.
    converged
        Whether the last doubling changed the time by at most `CONVERGED`.
    """

    factors: tuple[int, ...]
    choosing_us: tuple[float, ...]
    used: int
    converged: bool

    @property
    def change(self) -> float | None:
        """Change of the time by the last doubling, as a share; None where steps were never doubled."""
        if len(self.choosing_us) < 2:
            return None
        return self.choosing_us[-1] / self.choosing_us[-2] - 1.0


def converge(choosing_us: Callable[[int], float], *, most_factor: int) -> Convergence:
    """Double the steps until the time on the choosing requests stays.

    ``choosing_us`` solves with a multiple of the first number of steps and returns the plan's time.
    """
    factors, times = [1], [choosing_us(1)]
    converged = False
    while not converged and 2 * factors[-1] <= most_factor:
        factors.append(2 * factors[-1])
        times.append(choosing_us(factors[-1]))
        converged = abs(times[-1] - times[-2]) <= CONVERGED * times[-2]
    least = min(times)
    used = next(
        factor for factor, each in zip(factors, times, strict=True) if each <= (1.0 + CONVERGED) * least
    )
    return Convergence(tuple(factors), tuple(times), used, converged)


def most_step_factor(steps: int, layer_experts: int) -> int:
    """The largest factor by which ``steps`` steps of ``layer_experts`` (L · E) entries may be multiplied."""
    return max(1, min(MOST_FACTOR, _MOST_ENTRIES // (steps * layer_experts)))
