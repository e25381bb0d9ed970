"""Mehrotra's predictor-corrector method on the relaxed program, over all layers at once."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError

from placer.solvers.layer_view import Float64s
from placer.solvers.normal_equations import NormalEquations
from placer.solvers.relaxation import Multipliers
from placer.solvers.relaxed_program import RelaxedProgram
from placer.solvers.variables import Rows, Variables

STEP_BACK = 0.99
"""Share of the longest step that stays inside; the usual damping."""


@dataclass(frozen=True)
class Iterate:
    """One point on the way to the optimum of the program.

    Attributes
    ----------
    multipliers
        Dual values; valid for a bound at every iterate.
    fraction
        float64 [L, E] in (0, 1), primal values.
    gap_us
        Complementarity: an estimate of how far the program is from closed.
    """

    multipliers: Multipliers
    fraction: Float64s
    gap_us: float


def iterates(program: RelaxedProgram, *, price: float | None, iterations: int = 60) -> Iterator[Iterate]:
    """Walk the central path; stop when the program is closed to working accuracy or numerics give out.

    Parameters
    ----------
    price
        The fixed price the program was written with, or None when it has a budget.
    iterations
        At most this many.

    Notes
    -----
    Mehrotra, On the implementation of a primal-dual interior point method, SIAM J. Optim. 2 (1992). The
    layers meet in one budget row only, so each step factors one small matrix per layer.
    """
    space = Variables(program)
    cost, upper, bounded = space.cost, space.upper, space.bounded
    target = space.right_side()
    primal = space.start()
    dual = space.start_rows()
    reduced = cost - space.transposed(dual)
    scale = float(np.abs(reduced).mean()) + 1e-12
    low_dual = np.where(bounded, np.maximum(reduced, 0.0) + 0.1 * scale, np.maximum(reduced, 0.05))
    high_dual = np.where(bounded, np.maximum(-reduced, 0.0) + 0.1 * scale, 0.0)
    pairs = len(cost) + int(bounded.sum())

    for _ in range(iterations):
        slack = np.where(bounded, upper - primal, 1.0)
        mu = float(primal @ low_dual + (slack * high_dual)[bounded].sum()) / pairs
        yield Iterate(space.multipliers(dual, price), space.fraction(primal), mu * pairs)
        missing = target - space.image(primal)
        if mu * pairs <= 1e-9 * program.gap_scale_us and missing.largest() <= 1e-7 * program.gap_scale_us:
            return
        unbalanced = cost - space.transposed(dual) - low_dual + high_dual
        theta = 1.0 / (low_dual / primal + high_dual / slack)
        try:
            system = NormalEquations(space, theta)
        except LinAlgError:
            return

        def direction(
            low_target: Float64s,
            high_target: Float64s,
            primal: Float64s = primal,
            slack: Float64s = slack,
            low_dual: Float64s = low_dual,
            high_dual: Float64s = high_dual,
            theta: Float64s = theta,
            unbalanced: Float64s = unbalanced,
            missing: Rows = missing,
            system: NormalEquations = system,
        ) -> tuple[Float64s, Rows, Float64s, Float64s]:
            pull = unbalanced - low_target / primal + high_target / slack
            d_dual = system.solve(missing + space.image(theta * pull))
            d_primal = theta * (space.transposed(d_dual) - pull)
            d_low = (low_target - low_dual * d_primal) / primal
            d_high = np.where(bounded, (high_target + high_dual * d_primal) / slack, 0.0)
            return d_primal, d_dual, d_low, d_high

        # Predictor: straight at complementarity zero; how far it gets says how much to centre.
        d_primal, d_dual, d_low, d_high = direction(-primal * low_dual, -slack * high_dual)
        along, along_dual = _longest(primal, slack, low_dual, high_dual, bounded, d_primal, d_low, d_high)
        ahead = float((primal + along * d_primal) @ (low_dual + along_dual * d_low))
        ahead += float(((slack - along * d_primal) * (high_dual + along_dual * d_high))[bounded].sum())
        centre = mu * (max(ahead, 0.0) / pairs / mu) ** 3
        d_primal, d_dual, d_low, d_high = direction(
            centre - primal * low_dual - d_primal * d_low,
            np.where(bounded, centre - slack * high_dual + d_primal * d_high, 0.0),
        )
        along, along_dual = _longest(primal, slack, low_dual, high_dual, bounded, d_primal, d_low, d_high)
        along, along_dual = min(1.0, STEP_BACK * along), min(1.0, STEP_BACK * along_dual)
        if not np.all(np.isfinite(d_primal)) or max(along, along_dual) < 1e-10:
            return
        primal = primal + along * d_primal
        dual = dual + d_dual.times(along_dual)
        low_dual = low_dual + along_dual * d_low
        high_dual = high_dual + along_dual * d_high


def _longest(
    primal: Float64s,
    slack: Float64s,
    low_dual: Float64s,
    high_dual: Float64s,
    bounded: np.ndarray[tuple[int], np.dtype[np.bool_]],
    d_primal: Float64s,
    d_low: Float64s,
    d_high: Float64s,
) -> tuple[float, float]:
    """Longest steps, up to 1, that keep the primal and the dual variables non-negative."""
    with np.errstate(divide="ignore", invalid="ignore"):
        down = np.where(d_primal < 0, -primal / d_primal, np.inf).min()
        up = np.where(bounded & (d_primal > 0), slack / d_primal, np.inf).min()
        low = np.where(d_low < 0, -low_dual / d_low, np.inf).min()
        high = np.where(bounded & (d_high < 0), -high_dual / d_high, np.inf).min()
    return float(min(1.0, down, up)), float(min(1.0, low, high))
