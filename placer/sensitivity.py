"""What HBM is worth at a placement: each expert's place by itself, and the budget by its multiplier."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.solvers.marginal import marginal_us
from placer.solvers.problem import Mask, PlacementProblem


@dataclass(frozen=True)
class Sensitivity:
    """Microseconds per output token that room is worth.

    Attributes
    ----------
    value_us
        float [L, E], what each expert saves by being hot, all others staying where they are.
    expert_bytes
        Bytes per GPU that a hot expert takes.
    price_us_per_gib
        The solver's multiplier of the budget: what a GiB more per GPU saves, to first order; 0 where the placement
        leaves room for another expert, so that memory is not what limits it; None where the solver states none.
    """

    value_us: NDArray[np.float64]
    expert_bytes: int
    price_us_per_gib: float | None


def sensitivity(problem: PlacementProblem, hot: Mask, price_us_per_byte: float | None) -> Sensitivity:
    """Sensitivity of ``problem`` at the placement ``hot`` (bool [L, E]); experts of all layers are of one size."""
    expert_bytes = int(problem.expert_bytes[0])
    # Complementary slackness: a budget that is not used up has no price.
    if price_us_per_byte is not None and problem.budget_bytes - problem.used_bytes(hot) >= expert_bytes:
        price_us_per_byte = 0.0
    return Sensitivity(
        value_us=np.asarray(marginal_us(problem, hot), dtype=np.float64),
        expert_bytes=expert_bytes,
        price_us_per_gib=None if price_us_per_byte is None else price_us_per_byte * 2**30,
    )
