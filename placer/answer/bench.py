"""What `placer bench` prints, and its CSV files."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.part import VerdictLine
from placer.answer.visible import all_visible, visible
from placer.output import write_whole
from placer.solvers.bench.bench import BenchReport, BenchRow
from placer.solvers.bench.comparison import ComparisonRow
from placer.units import MIB, figure, gap_percent


def bench_answer(report: BenchReport) -> RenderableType:
    """Each instance with a line per solver, then the solvers at equal time."""
    parts: list[RenderableType] = list(_results(report.rows))
    if report.comparison:
        parts += ["", *_compared(report.comparison)]
    return Group(*parts)


def write_csv(rows: Sequence[Any], path: Path, flag: str = "--csv") -> None:
    """Dataclass ``rows`` of one kind as CSV to the ``path`` that ``flag`` names, whole or not at all."""
    frame = pd.DataFrame([asdict(row) for row in rows])
    write_whole(path, lambda temporary: frame.to_csv(temporary, index=False), flag)


def _results(rows: Sequence[BenchRow]) -> Iterator[RenderableType]:
    for name, group in groupby(rows, key=lambda row: row.name):
        solved = list(group)
        best = solved[0]
        known = "no placement is known"
        if best.best_known_us is not None:
            known = f"best known {figure(best.best_known_us, 1)} µs ({best.best_known_by})"
        yield VerdictLine(f"{visible(name)}: {known}")
        table = Table(box=None, pad_edge=False)
        for header in (
            "  solver",
            "objective µs",
            "over best",
            "LP µs",
            "bound µs",
            "gap",
            "seconds",
            "MiB",
            "status",
        ):
            left = header in ("  solver", "status")
            table.add_column(header, justify="left" if left else "right", no_wrap=True)
        for row in map(all_visible, solved):
            table.add_row(
                f"  {row.solver}",
                _us(row.objective_us),
                _over(row.objective_us, row.best_known_us),
                _us(row.lp_us),
                _us(row.bound_us),
                "-" if row.gap is None else gap_percent(row.gap),
                f"{row.seconds:.2f}",
                f"{row.peak_bytes / MIB:,.0f}",
                str(row.status),
            )
        yield table


def _compared(rows: Sequence[ComparisonRow]) -> Iterator[RenderableType]:
    worse = [row for row in rows if not row.never_worse]
    yield VerdictLine(
        "At equal time the structured solver is never worse than HiGHS."
        if not worse
        else f"At equal time HiGHS is better in {len(worse)} of {len(rows)} cases."
    )
    table = Table(box=None, pad_edge=False)
    for header in ("instance", "limit s", "5 s, µs", "at limit, µs", "HiGHS, µs", "HiGHS is", "bound, µs"):
        table.add_column(header, justify="left" if header == "instance" else "right")
    for row in map(all_visible, rows):
        table.add_row(
            row.name,
            f"{row.limit_s:g}",
            _us(row.first_us),
            _us(row.structured_us),
            _us(row.highs_us),
            _over(row.highs_us, row.structured_us),
            _us(row.highs_bound_us),
        )
    yield table
    if any(row.recorded for row in rows):
        yield Text(
            "HiGHS as recorded in solvers/bench/recorded_highs.csv, by its own CPU time (1 thread); "
            "'--rivals highs' runs it now."
        )


def _us(value: float | None) -> str:
    return "-" if value is None else figure(value, 1)


def _over(value: float | None, base: float | None) -> str:
    return "-" if value is None or base is None or base <= 0 else f"{value / base - 1:+z.3%}"
