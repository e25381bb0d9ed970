"""The timed calls of a profile as a table to plot: measured quantiles beside what the cost model says."""

import csv
import io
from pathlib import Path

from placer.output import write_text
from placer.profiler.profile import Profile
from placer.profiler.timing.kernel_profile import KernelProfile

COLUMNS = (
    "side",
    "kernel",
    "regime_min_tokens",
    "use",
    "source",
    "tokens",
    "active_experts",
    "rows_total",
    "rows_heaviest",
    "p10_us",
    "p25_us",
    "p50_us",
    "p90_us",
    "predicted_us",
    "error",
    "extrapolated",
    "rows",
)
"""``use`` is fit, choose, report or idle (no rows); ``error`` is (predicted - p25) / p25; ``rows`` are separated by
spaces."""


def points_csv(profile: Profile) -> str:
    """One line for every timed call of both sides (none of a side by datasheet), under `COLUMNS`."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for kernel in (profile.cpu, profile.gpu.kernel):
        if isinstance(kernel, KernelProfile):
            table.writerows(_lines(kernel))
    return text.getvalue()


def write_points(profile: Profile, path: Path) -> None:
    """Write `points_csv`, whole or not at all."""
    write_text(path, points_csv(profile), "--points")


def _lines(kernel: KernelProfile) -> list[tuple[object, ...]]:
    return [
        (
            kernel.side,
            f"{kernel.backend} {kernel.method}",
            kernel.cost.regime(point.tokens).min_tokens,
            point.use,
            point.source,
            point.tokens,
            len(point.rows),
            sum(point.rows),
            max(point.rows, default=0),
            *(
                f"{us:.2f}"
                for us in (point.p10_us, point.p25_us, point.p50_us, point.p90_us, point.predicted_us)
            ),
            f"{point.predicted_us / point.p25_us - 1:.5f}",
            int(point.extrapolated),
            " ".join(map(str, point.rows)),
        )
        for point in kernel.points
    ]
