"""What `placer bench` prints, and its CSV."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import pandas as pd
from rich.console import RenderableType
from rich.table import Table

from placer.answer.visible import all_visible
from placer.output import write_whole
from placer.solvers.bench import BenchRow
from placer.units import figure


def bench_answer(rows: Sequence[BenchRow]) -> RenderableType:
    """One line per instance and solver."""
    table = Table(box=None, pad_edge=False)
    for header in ("instance", "solver", "objective µs", "bound µs", "gap", "seconds", "status"):
        table.add_column(header, justify="left" if header in ("instance", "solver", "status") else "right")
    for row in map(all_visible, rows):
        table.add_row(
            row.name,
            row.solver,
            "-" if row.objective_us is None else figure(row.objective_us, 1),
            "-" if row.bound_us is None else figure(row.bound_us, 1),
            "-" if row.gap is None else f"{row.gap:z.3%}",
            f"{row.seconds:.2f}",
            str(row.status),
        )
    return table


def write_bench_csv(rows: Sequence[BenchRow], path: Path) -> None:
    """The rows as CSV, whole or not at all."""
    frame = pd.DataFrame([asdict(row) for row in rows], columns=[field.name for field in fields(BenchRow)])
    write_whole(path, lambda temporary: frame.to_csv(temporary, index=False))
