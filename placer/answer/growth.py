"""What `placer bench --growth` prints."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from placer.answer.part import VerdictLine
from placer.solvers.bench.growth import Growth
from placer.units import gap_percent


def growth_answer(results: Sequence[Growth]) -> RenderableType:
    """The fit of each family, then its solves."""
    return Group(*(part for result in results for part in (VerdictLine(_verdict(result)), _points(result))))


def _verdict(result: Growth) -> str:
    counted = f"{len(result.points) - result.left_out} of {len(result.points)} solves"
    if not result.exponents:
        return f"{result.family}: no fit, since only {counted} ended within the limit"
    powers = " · ".join(f"{one.dimension}^({one.value:.2f} ± {one.error:.2f})" for one in result.exponents)
    left_out = f"; without {result.left_out} that ran into the limit" if result.left_out else ""
    return (
        f"{result.family}: CPU seconds grow as {powers}, fitted to {counted}, "
        f"typically within a factor {result.spread:.2f}{left_out}"
    )


def _points(result: Growth) -> Table:
    table = Table(box=None, pad_edge=False)
    for header in ("layers", "experts", "steps", "seconds", "CPU s", "gap", "status"):
        table.add_column(header, justify="left" if header == "status" else "right")
    for point in result.points:
        table.add_row(
            f"{point.layers}",
            f"{point.experts}",
            f"{point.steps}",
            f"{point.seconds:.2f}",
            f"{point.cpu_seconds:.2f}",
            "-" if point.gap is None else gap_percent(point.gap),
            point.status,
        )
    return table
