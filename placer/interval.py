"""A figure and how far it may be off for the requests that happened to be recorded."""

from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean, and its 95 % interval over resampled requests (None where requests are not told apart)."""

    mean: float
    low: float | None
    high: float | None

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of zero; False where there is none."""
        return self.low is not None and self.high is not None and not self.low <= 0.0 <= self.high
