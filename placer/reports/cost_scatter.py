"""How far the cost model can be trusted: predicted against measured time of every call that was timed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.profiler.profile import Profile
from placer.profiler.timing.kernel_profile import KernelProfile, TimedPoint
from placer.reports.absent import Absent

USES = {
    "report": "held out: reported",
    "choose": "held out: chose the form",
    "fit": "fitted to",
    "idle": "no rows",
    "": "use not recorded",
}
"""What a call was used for, in words, most telling first."""


@dataclass(frozen=True)
class TimedCalls:
    """Calls of one use: float [N] arrays in microseconds, and a text for each.

    ``measured_us`` is the lower quartile that the model is held against, ``low_us`` and ``high_us`` the tenth and the
    ninetieth percentile of the samples.
    """

    use: str
    measured_us: NDArray[np.float64]
    low_us: NDArray[np.float64]
    high_us: NDArray[np.float64]
    predicted_us: NDArray[np.float64]
    text: tuple[str, ...]


@dataclass(frozen=True)
class CostScatter:
    """One side's calls, and the mean and 90th percentile of its error on the calls held out, as fractions."""

    side: str
    kernel: str
    mape: float
    p90_error: float
    heldout_calls: int
    calls: tuple[TimedCalls, ...]

    @property
    def band(self) -> tuple[float, float]:
        """Factors on the measured time between which nine in ten held-out calls are predicted."""
        return max(1.0 - self.p90_error, 0.01), min(1.0 + self.p90_error, 100.0)

    @property
    def range_us(self) -> tuple[float, float]:
        """Shortest and longest time of any call, measured or predicted."""
        times = np.concatenate([np.append(part.measured_us, part.predicted_us) for part in self.calls])
        return float(times[times > 0].min(initial=1e9)), float(times.max(initial=0.0))


def cost_scatters(profile: Profile | None) -> tuple[CostScatter, ...] | Absent:
    """The timed sides of ``profile``; a side taken from a datasheet has no calls to show."""
    if profile is None:
        return Absent(
            "no profile was given", "add --profile profile.json, the one that the plan was solved with"
        )
    sides = {"cpu": profile.cpu, "gpu": profile.gpu.kernel}
    timed = {
        side: kernel for side, kernel in sides.items() if isinstance(kernel, KernelProfile) and kernel.points
    }
    if not timed:
        return Absent(
            "the profile times neither side: its figures are datasheets'",
            "profile the server's own CPU and GPU",
        )
    return tuple(_scatter(side, kernel) for side, kernel in timed.items())


def _scatter(side: str, kernel: KernelProfile) -> CostScatter:
    error = kernel.report.overall
    parts: dict[str, list[TimedPoint]] = {use: [] for use in USES}
    for point in kernel.points:
        parts[point.use if point.use in USES else ""].append(point)
    return CostScatter(
        side=side,
        kernel=f"{kernel.backend} {kernel.method}, {kernel.machine.cpu if side == 'cpu' else kernel.variant}",
        mape=error.mape,
        p90_error=error.p90_error,
        heldout_calls=error.calls,
        calls=tuple(_calls(use, points) for use, points in parts.items() if points),
    )


def _calls(use: str, points: list[TimedPoint]) -> TimedCalls:
    return TimedCalls(
        use,
        measured_us=np.array([point.p25_us for point in points]),
        low_us=np.array([min(point.p10_us, point.p25_us) for point in points]),
        high_us=np.array([max(point.p90_us, point.p25_us) for point in points]),
        predicted_us=np.array([point.predicted_us for point in points]),
        text=tuple(_text(point) for point in points),
    )


def _text(point: TimedPoint) -> str:
    beyond = ", extrapolated" if point.extrapolated else ""
    return (
        f"{point.tokens:,} tokens, {len(point.rows):,} active experts, {sum(point.rows):,} rows, "
        f"heaviest {max(point.rows, default=0):,}{beyond}"
    )
