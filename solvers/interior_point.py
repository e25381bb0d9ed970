"""Mehrotra's predictor-corrector method on the relaxed program, over all layers at once."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
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
    point: _Point | None = _start(space)
    for _ in range(iterations):
        if point is None:
            return
        gap = point.products(space.bounded)
        yield Iterate(space.multipliers(point.dual, price), space.fraction(point.primal), gap)
        # Close to the end some quotients overflow; a step that is not finite ends the walk.
        with np.errstate(all="ignore"):
            point = _next(space, point)


@dataclass(frozen=True)
class _Point:
    """Primal vector, its distance to the upper bounds (1 where there is none), and all dual variables."""

    primal: Float64s
    slack: Float64s
    dual: Rows
    low_dual: Float64s
    high_dual: Float64s

    def products(self, bounded: NDArray[np.bool_]) -> float:
        """Sum of the complementarity products."""
        return float(self.primal @ self.low_dual + (self.slack * self.high_dual)[bounded].sum())


@dataclass(frozen=True)
class _Direction:
    primal: Float64s
    dual: Rows
    low_dual: Float64s
    high_dual: Float64s


def _start(space: Variables) -> _Point:
    primal, dual = space.start(), space.start_rows()
    reduced = space.cost - space.transposed(dual)
    cushion = 0.1 * (float(np.abs(reduced).mean()) + 1e-12)
    return _Point(
        primal=primal,
        slack=np.where(space.bounded, space.upper - primal, 1.0),
        dual=dual,
        low_dual=np.where(space.bounded, np.maximum(reduced, 0.0) + cushion, np.maximum(reduced, 0.05)),
        high_dual=np.where(space.bounded, np.maximum(-reduced, 0.0) + cushion, 0.0),
    )


def _next(space: Variables, point: _Point) -> _Point | None:
    """One predictor-corrector step, or None when there is nothing to gain or numerics give out."""
    bounded, scale = space.bounded, space.program.gap_scale_us
    pairs = len(point.primal) + int(bounded.sum())
    mu = point.products(bounded) / pairs
    missing = space.right_side() - space.image(point.primal)
    if mu * pairs <= 1e-9 * scale and missing.largest() <= 1e-7 * scale:
        return None
    unbalanced = space.cost - space.transposed(point.dual) - point.low_dual + point.high_dual
    theta = 1.0 / (point.low_dual / point.primal + point.high_dual / point.slack)
    if not np.all(np.isfinite(theta)):
        return None
    try:
        system = NormalEquations(space, theta)
    except LinAlgError:
        return None

    def direction(low_target: Float64s, high_target: Float64s) -> _Direction:
        pull = unbalanced - low_target / point.primal + high_target / point.slack
        dual = system.solve(missing + space.image(theta * pull))
        primal = theta * (space.transposed(dual) - pull)
        low = (low_target - point.low_dual * primal) / point.primal
        high = np.where(bounded, (high_target + point.high_dual * primal) / point.slack, 0.0)
        return _Direction(primal, dual, low, high)

    # Predictor: straight at complementarity zero; how far it gets says how much to centre.
    predictor = direction(-point.primal * point.low_dual, -point.slack * point.high_dual)
    ahead = _moved(point, predictor, *_longest(point, predictor, bounded), bounded).products(bounded)
    centre = mu * (max(ahead, 0.0) / pairs / mu) ** 3
    corrector = direction(
        centre - point.primal * point.low_dual - predictor.primal * predictor.low_dual,
        np.where(
            bounded, centre - point.slack * point.high_dual + predictor.primal * predictor.high_dual, 0.0
        ),
    )
    along, along_dual = _longest(point, corrector, bounded)
    if not np.all(np.isfinite(corrector.primal)) or max(along, along_dual) < 1e-10:
        return None
    return _moved(point, corrector, min(1.0, STEP_BACK * along), min(1.0, STEP_BACK * along_dual), bounded)


def _moved(
    point: _Point, step: _Direction, along: float, along_dual: float, bounded: NDArray[np.bool_]
) -> _Point:
    return _Point(
        primal=point.primal + along * step.primal,
        slack=np.where(bounded, point.slack - along * step.primal, 1.0),
        dual=point.dual + step.dual.times(along_dual),
        low_dual=point.low_dual + along_dual * step.low_dual,
        high_dual=point.high_dual + along_dual * step.high_dual,
    )


def _longest(point: _Point, step: _Direction, bounded: NDArray[np.bool_]) -> tuple[float, float]:
    """Longest primal and dual steps, up to 1, that keep every variable non-negative."""
    down = np.where(step.primal < 0, -point.primal / step.primal, np.inf).min()
    up = np.where(bounded & (step.primal > 0), point.slack / step.primal, np.inf).min()
    low = np.where(step.low_dual < 0, -point.low_dual / step.low_dual, np.inf).min()
    high = np.where(bounded & (step.high_dual < 0), -point.high_dual / step.high_dual, np.inf).min()
    return float(min(1.0, down, up)), float(min(1.0, low, high))
