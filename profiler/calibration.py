"""A profile's calibration: named factors that a running server's own figures put on the cost model."""

from collections.abc import Sequence
from dataclasses import dataclass

from placer.profiler.factor import FactorName, Factors
from placer.units import duration, rounded

WORSE = 0.1
"""Relative error that factors add to a figure which checks them, above which it contradicts them."""
UNEXPLAINED = 0.2
"""Mean error with the factors above which something is wrong that they do not tell."""
EXTREME = 2.0
"""A factor above this, or below its inverse, says that the profile is of another machine or another program."""
_MOST_DIGITS = 17
"""Significant digits that tell any two numbers apart."""


@dataclass(frozen=True)
class CalibratedFigure:
    """One figure before and after.

    Attributes
    ----------
    name, unit
        What was measured.
    measured, before, after
        By the server; predicted by the kernels' measurements alone; predicted with the factors.
    fitted
        Whether the factors were fitted to it; otherwise it only checks them.
    samples
        Requests or calls that it is taken over.
    """

    name: str
    unit: str
    measured: float
    before: float
    after: float
    fitted: bool
    samples: int

    @property
    def error_before(self) -> float:
        """Relative error of the prediction without factors."""
        return self.before / self.measured - 1.0

    @property
    def error_after(self) -> float:
        """Relative error of the prediction with factors."""
        return self.after / self.measured - 1.0


@dataclass(frozen=True)
class CalibrationSource:
    """A file that figures came from: its name, the hash of its bytes, what wrote it, what it holds so many of."""

    name: str
    sha256: str
    written_by: str
    samples: int


@dataclass(frozen=True)
class Calibration:
    """Factors with where they come from and how far to trust them.

    Attributes
    ----------
    created, placer_version
        When, and by which version.
    factors
        Applied wherever a cost model is made of the profile; the kernels' measurements stay as they are.
    reasons, alternatives
        By factor: how it was found or why it stays; other sets of factors that explain the figures as well.
    figures
        What was measured and predicted.
    error_before, error_after
        Over the figures, the geometric mean of how far predictions are off in either direction.
    sources
        The files.
    placement, trace
        What the server ran, and whose routing stood in for its traffic.
    distrust
        When not to trust it, one sentence each; warnings begin with "warning: ".
    """

    created: str
    placer_version: str
    factors: Factors
    reasons: dict[str, str]
    alternatives: tuple[Factors, ...]
    figures: tuple[CalibratedFigure, ...]
    error_before: float
    error_after: float
    sources: tuple[CalibrationSource, ...]
    placement: str
    trace: str
    distrust: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The calibration in one line, for whatever is predicted with it."""
        files = ", ".join(dict.fromkeys(source.written_by for source in self.sources))
        return (
            f"calibrated {self.created[:10]} by {files}: {self.factors}; mean error {self.error_before:.1%} before, "
            f"{self.error_after:.1%} after"
        )

    def origin(self, *names: FactorName) -> str:
        """What to add to the origin of a figure that the factors ``names`` go into; empty where none changes it."""
        changed = [name for name in names if name in self.factors.changed]
        if not changed:
            return ""
        only = Factors()
        for name in changed:
            only = only.with_value(name, self.factors.value(name))
        return f"; calibrated: {only}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the factors doubtful."""
        return tuple(each for each in self.distrust if each.startswith("warning: "))

    @property
    def fault(self) -> str | None:
        """What makes the factors unusable, or None."""
        factors = self.factors
        scales = (factors.cold, factors.hot, factors.base, factors.transfer)
        if not all(0.001 <= scale <= 1000 for scale in scales) or not 0 <= factors.step_us <= 1e9:
            return "a factor is out of range"
        return None


def contradiction_warnings(
    factors: Factors, figures: Sequence[CalibratedFigure], error_before: float, error_after: float
) -> tuple[str, ...]:
    """A sentence when ``factors`` make the mean error no smaller or leave much of it, one for the check made worst."""
    found = []
    if factors.changed and error_after >= error_before:
        found.append(
            f"warning: the factors make predictions no better (mean error {error_before:.1%} before, "
            f"{error_after:.1%} after): do not plan with them, give more benchmarks or other --factors"
        )
    elif error_after > UNEXPLAINED:
        found.append(
            f"warning: a mean error of {error_after:.1%} is left that no factor explains: the figures contradict each "
            "other, or the server does something that is not modelled"
        )
    worsened = [
        each
        for each in figures
        if factors.changed and not each.fitted and abs(each.error_after) > abs(each.error_before) + WORSE
    ]
    if worsened:
        worst = max(worsened, key=lambda each: abs(each.error_after) - abs(each.error_before))
        others = f" (and {len(worsened) - 1} more)" if len(worsened) > 1 else ""
        found.append(
            f"warning: the check {worst.name}{others} contradicts {factors}: off by {worst.error_before:+.1%} without "
            f"and {worst.error_after:+.1%} with it; benchmark at other numbers of clients, or try other --factors"
        )
    return tuple(found)


def extreme_warnings(factors: Factors, step_scale_us: float) -> tuple[str, ...]:
    """A sentence for every factor outside 1/2 to 2, and for time per step above half of ``step_scale_us``."""
    why = "the profile is of another machine, or the server does something that is not modelled"
    found = [
        f"warning: {name.value} ×{_told_from_limits(factors.value(name))} is outside 0.5 to 2: {why}"
        for name in factors.changed
        if name is not FactorName.STEP and not 1 / EXTREME <= factors.value(name) <= EXTREME
    ]
    if factors.step_us > step_scale_us / EXTREME:
        found.append(
            f"warning: {duration(factors.step_us, 3)} are added to a step, half of it and more: {why}"
        )
    return tuple(found)


def _told_from_limits(value: float) -> str:
    """An extreme factor with digits that show it beyond its limit."""
    digits = 3
    while digits < _MOST_DIGITS and 1 / EXTREME <= float(f"{value:.{digits - 1}e}") <= EXTREME:
        digits += 1
    return rounded(value, digits)
