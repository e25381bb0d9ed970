"""A figure that a server's own files hold, beside its prediction under any factors of a calibration."""

from collections.abc import Callable
from dataclasses import dataclass

from placer.profiler.calibration import CalibratedFigure
from placer.profiler.factor import UNCALIBRATED, Factors
from placer.profiler.factor_fit import FittedFigure


@dataclass(frozen=True)
class MeasuredFigure:
    """One figure.

    Attributes
    ----------
    name, unit
        What it is.
    measured
        By the server; above 0.
    predicted
        The same under factors.
    samples
        Requests or calls that it is taken over.
    fitted
        Whether factors are fitted to it; otherwise it only checks them.
    """

    name: str
    unit: str
    measured: float
    predicted: Callable[[Factors], float]
    samples: int
    fitted: bool

    @property
    def to_fit(self) -> FittedFigure:
        """What the fit takes of it."""
        return FittedFigure(self.measured, self.predicted)

    def calibrated(self, factors: Factors) -> CalibratedFigure:
        """Before and after ``factors``."""
        return CalibratedFigure(
            name=self.name,
            unit=self.unit,
            measured=self.measured,
            before=self.predicted(UNCALIBRATED),
            after=self.predicted(factors),
            fitted=self.fitted,
            samples=self.samples,
        )
