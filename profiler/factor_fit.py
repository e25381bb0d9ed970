"""Which factors a server's measurements identify, and their values: the fewest that explain the figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from placer.profiler.factor import UNCALIBRATED, FactorName, Factors
from placer.units import counted

EXPLAINED = 0.01
"""Root mean square relative error at which figures are explained: more factors would fit their noise."""
FIGURE_ERROR = 0.05
"""Relative error that one figure of a benchmark is taken to have when it is asked what a factor is known to."""
KNOWN_WITHIN = 0.25
"""Standard error of a factor (relative) above which the figures do not identify it."""
_IMPROVES = 0.7
_MOST = np.log(10.0)
_NO_STEP = 1e-9
_SLOPE_OVER = 0.01
"""Half of the change (logarithm) over which slopes are taken: an open loop's steps change in small jumps."""


@dataclass(frozen=True)
class FittedFigure:
    """A figure that the server measured, and what any factors make of its prediction (same unit, above 0)."""

    measured: float
    predicted: Callable[[Factors], float]

    def log_error(self, factors: Factors) -> float:
        """Logarithm of prediction over measurement."""
        return float(np.log(self.predicted(factors) / self.measured))


@dataclass(frozen=True)
class FactorFit:
    """The factors found.

    Attributes
    ----------
    factors
        Their values; a factor that is not in ``reasons`` as fitted keeps 1 (0 for ``step_us``).
    reasons
        By factor: how it was found, or why it stays.
    alternatives
        Other sets of as many factors that explain the figures as well: they cannot be told apart.
    """

    factors: Factors
    reasons: dict[FactorName, str]
    alternatives: tuple[Factors, ...]


def fit_factors(
    figures: Sequence[FittedFigure],
    *,
    step_scale_us: float,
    names: Sequence[FactorName] = tuple(FactorName),
) -> FactorFit:
    """The smallest set of ``names`` that brings predictions to the ``figures``, by least squares of log ratios.

    Sets of growing size are tried while the error is above `EXPLAINED` and falls by three tenths at least; a
    set counts only where the figures know each of its factors within `KNOWN_WITHIN` and none is off tenfold, and
    never more factors than figures. Of sets that explain the figures alike, the one that changes least (in
    logarithms) is taken, which for one figure is the factor that it depends on most; and sets with time added
    per step (in units of ``step_scale_us``) last.
    """
    if not figures:
        return FactorFit(
            UNCALIBRATED, dict.fromkeys(FactorName, "no figure was measured that it could change"), ()
        )
    names = [name for name in FactorName if name in names]
    best = _Trial.of(figures, (), step_scale_us)
    singles: list[_Trial] = []
    rivals: list[_Trial] = []
    trials: list[_Trial] = []
    for size in range(1, min(len(figures), len(names)) + 1):
        if best.error <= EXPLAINED:
            break
        trials = [_Trial.of(figures, chosen, step_scale_us) for chosen in combinations(names, size)]
        singles = singles or trials
        known = [trial for trial in trials if trial.is_known and trial.error < _IMPROVES * best.error]
        if known:
            least = min(trial.error for trial in known)
            best = max(
                (trial for trial in known if trial.error <= max(least * 1.05, EXPLAINED / 10)),
                key=lambda trial: trial.preference,
            )
            rivals = trials
    return FactorFit(
        best.factors,
        {name: _reason(name, best, singles, trials, len(figures), names) for name in FactorName},
        _alternatives(best, rivals),
    )


@dataclass(frozen=True)
class _Trial:
    """The best values of one set of factors."""

    chosen: tuple[FactorName, ...]
    factors: Factors
    error: float
    standard_errors: NDArray[np.float64]
    change: float
    at_limit: bool

    @classmethod
    def of(cls, figures: Sequence[FittedFigure], chosen: tuple[FactorName, ...], scale_us: float) -> "_Trial":
        def factors(x: NDArray[np.float64]) -> Factors:
            found = UNCALIBRATED
            for name, value in zip(chosen, x.tolist(), strict=True):
                found = found.with_value(
                    name, value * scale_us if name is FactorName.STEP else float(np.exp(value))
                )
            return found

        def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.array([figure.log_error(factors(x)) for figure in figures])

        if not chosen:
            error = float(np.sqrt(np.mean(residuals(np.empty(0)) ** 2)))
            return cls((), UNCALIBRATED, error, np.empty(0), change=0.0, at_limit=False)
        low = np.array([-_NO_STEP if name is FactorName.STEP else -_MOST for name in chosen])
        high = np.full(len(chosen), _MOST)

        def slopes(x: NDArray[np.float64]) -> NDArray[np.float64]:
            columns = []
            for place in range(len(x)):
                # Time added per step cannot be negative.
                ends = np.clip(x[place] + np.array([-_SLOPE_OVER, _SLOPE_OVER]), low[place], high[place])
                below, above = (residuals(np.where(np.arange(len(x)) == place, end, x)) for end in ends)
                columns.append((above - below) / (ends[1] - ends[0]))
            return np.stack(columns, axis=1)

        found = least_squares(
            residuals, np.zeros(len(chosen)), jac=slopes, bounds=(low, high), xtol=1e-5, ftol=1e-8
        )
        normal = found.jac.T @ found.jac
        if np.linalg.cond(normal) < 1e12:
            errors = FIGURE_ERROR * np.sqrt(np.diag(np.linalg.inv(normal)))
        else:
            errors = np.full(len(chosen), np.inf)
        limit = 1e-3
        return cls(
            chosen,
            factors(np.where(np.abs(found.x) < _NO_STEP, 0.0, found.x)),
            float(np.sqrt(np.mean(found.fun**2))),
            errors,
            change=float(np.linalg.norm(found.x)),
            at_limit=bool(np.any((found.x < low + limit) & (low < -1)) or np.any(found.x > high - limit)),
        )

    @property
    def is_known(self) -> bool:
        return not self.at_limit and bool(np.all(self.standard_errors <= KNOWN_WITHIN))

    @property
    def preference(self) -> tuple[bool, float]:
        return FactorName.STEP not in self.chosen, -self.change


def _reason(
    name: FactorName,
    best: _Trial,
    singles: list[_Trial],
    last: list[_Trial],
    figures: int,
    names: Sequence[FactorName],
) -> str:
    if name in best.chosen:
        known = float(best.standard_errors[best.chosen.index(name)])
        return (
            f"fitted to {counted(figures, 'figure')}, known within {known:.0%} where each is right within "
            f"{FIGURE_ERROR:.0%}"
        )
    if name not in names:
        return "stays: it was not to be fitted"
    if not singles:
        return f"stays: the figures agree with the prediction within {EXPLAINED:.0%}"
    alone = next((trial for trial in singles if trial.chosen == (name,)), None)
    if alone is None or not np.all(alone.standard_errors <= KNOWN_WITHIN):
        return "stays: the figures hardly depend on it"
    if len(best.chosen) == figures:
        return f"stays: {counted(figures, 'figure')} cannot tell more than {counted(figures, 'factor')} apart"
    if best.error <= EXPLAINED:
        return "stays: the figures are explained without it"
    if not best.chosen and alone.is_known:
        return "stays: no value of it brings the figures much closer, so they may contradict each other"
    if any(trial.is_known for trial in last if name in trial.chosen):
        return "stays: it does not explain what is left"
    if any(trial.at_limit for trial in last if name in trial.chosen):
        return "stays: not even tenfold of it explains what is left, so the figures may contradict each other"
    return "stays: the figures cannot tell it apart from the other factors"


def _alternatives(best: _Trial, trials: Sequence[_Trial]) -> tuple[Factors, ...]:
    most = max(best.error * 1.05, EXPLAINED)
    return tuple(
        trial.factors
        for trial in trials
        if trial.chosen != best.chosen
        and not trial.at_limit
        and trial.error <= most
        and len(trial.factors.changed) == len(best.chosen)
    )
