"""How the time of a solve grows with layers, experts and steps: a sweep of sizes and a log-log fit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from placer.solvers.bench.family import Size, generated
from placer.solvers.bench.solver_run import STRUCTURED, Limits, run_solver
from placer.solvers.solution import SolverStatus

LAYERS, EXPERTS, STEPS = (16, 32, 64), (64, 128, 256), (16, 32, 64)
SWEEP = tuple(Size(*size) for size in product(LAYERS, EXPERTS, STEPS))
"""Every combination of three sizes of each."""
FAMILIES = ("cpu-bound", "balanced")
"""The two regimes whose times differ most."""
DIMENSIONS = ("layers", "experts", "steps")


@dataclass(frozen=True)
class GrowthPoint:
    """One solve of the sweep."""

    family: str
    layers: int
    experts: int
    steps: int
    seconds: float
    cpu_seconds: float
    gap: float | None
    status: str


@dataclass(frozen=True)
class Exponent:
    """Time grows as this power of ``dimension``; ``error`` is one standard error."""

    dimension: str
    value: float
    error: float


@dataclass(frozen=True)
class Growth:
    """One family's sweep and fit.

    Attributes
    ----------
    exponents
        Of layers, experts and steps; empty where fewer than five solves ended within the limit.
    spread
        Typical factor between a solve's time and the fit: exp of the residuals' standard deviation.
    left_out
        Solves that ran into the limit; the fit is without them.
    interrupted
        Whether Ctrl-C ended the sweep before all its solves.
    """

    family: str
    points: tuple[GrowthPoint, ...]
    exponents: tuple[Exponent, ...]
    spread: float | None
    left_out: int
    interrupted: bool = False


def growth(
    limits: Limits,
    *,
    families: Sequence[str] = FAMILIES,
    sizes: Sequence[Size] = SWEEP,
    seed: int = 0,
    progress: Callable[[str, float], None] | None = None,
) -> list[Growth]:
    """Solve generated instances of ``sizes`` to ``limits`` and fit how CPU time grows, for each family.

    Ctrl-C ends the sweep with what is finished.

    Raises
    ------
    BadInputError
        When a family is not known or no instance has a size.
    """
    results: list[Growth] = []
    for number, family in enumerate(families):
        points: list[GrowthPoint] = []
        for turn, size in enumerate(sizes):
            if progress is not None:
                done = (number * len(sizes) + turn) / (len(families) * len(sizes))
                progress(f"{family}: {size.layers} x {size.experts} x {size.steps}", done)
            try:
                run = run_solver(generated(family, seed=seed, size=size), STRUCTURED, limits)
            except KeyboardInterrupt:
                return [*results, replace(fitted(family, points), interrupted=True)]
            points.append(
                GrowthPoint(
                    family,
                    size.layers,
                    size.experts,
                    size.steps,
                    run.seconds,
                    run.cpu_seconds,
                    run.gap,
                    run.status.value,
                )
            )
        results.append(fitted(family, points))
    return results


def fitted(family: str, points: Sequence[GrowthPoint]) -> Growth:
    """The least-squares fit of log CPU seconds = constant + sum of exponent · log dimension.

    CPU time, so that other work on the machine does not change the exponents. Errors come from the
    residuals with n - 4 degrees of freedom.
    """
    ended = [point for point in points if point.status != SolverStatus.TIME_LIMIT.value]
    left_out = len(points) - len(ended)
    logs = np.log([[getattr(point, dimension) for dimension in DIMENSIONS] for point in ended] or [[1.0] * 3])
    matrix = np.column_stack([np.ones(len(logs)), logs])
    if len(ended) < 5 or np.linalg.matrix_rank(matrix) < 4:
        return Growth(family, tuple(points), (), None, left_out)
    seconds = np.log([max(point.cpu_seconds, 1e-3) for point in ended])
    solution = np.linalg.lstsq(matrix, seconds, rcond=None)[0]
    residuals = seconds - matrix @ solution
    variance = float(residuals @ residuals) / (len(ended) - 4)
    errors = np.sqrt(variance * np.diag(np.linalg.inv(matrix.T @ matrix)))
    exponents = tuple(
        Exponent(dimension, float(value), float(error))
        for dimension, value, error in zip(DIMENSIONS, solution[1:], errors[1:], strict=True)
    )
    return Growth(family, tuple(points), exponents, float(np.exp(np.sqrt(variance))), left_out)
