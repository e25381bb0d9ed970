"""How far a cost model's parts may be off: factors on their times, for bands around whatever is predicted."""

from dataclasses import dataclass

from placer.profiler.factor import Factors

Band = tuple[float, float]
"""Low and high factor on a time."""

DATASHEET_GPU_BAND: Band = (0.8, 1.5)
"""Of a GPU's roofline, which assumes 75 % of the peak bandwidth: kernels that reach between 94 % and half of it."""
DATASHEET_REASON = "a datasheet: kernels that reach between 94 % and half of the peak bandwidth (assumed)"
MOST_ERROR = 0.9


@dataclass(frozen=True)
class Uncertainty:
    """Low and high factors on the time of each part of the cost model.

    Attributes
    ----------
    cold, hot, base
        The CPU's side, the GPU's side, and what surrounds them. Copies to the host are always a datasheet's.
    reasons
        By the same names: where the factors come from.
    """

    cold: Band
    hot: Band
    base: Band
    reasons: dict[str, str]

    @property
    def fastest(self) -> Factors:
        """Every part at its low factor."""
        return Factors(self.cold[0], self.hot[0], self.base[0], transfer=DATASHEET_GPU_BAND[0])

    @property
    def slowest(self) -> Factors:
        """Every part at its high factor."""
        return Factors(self.cold[1], self.hot[1], self.base[1], transfer=DATASHEET_GPU_BAND[1])


def error_band(p90_error: float) -> Band:
    """The factors on a prediction whose relative error |predicted - measured| / measured is ``p90_error`` or less.

    The measured time is the predicted one over 1 + error.
    """
    error = min(p90_error, MOST_ERROR)
    return 1 / (1 + error), 1 / (1 - error)
