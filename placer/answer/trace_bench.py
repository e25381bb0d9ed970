"""What `placer trace bench` prints."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from placer.answer.part import VerdictLine
from placer.profiler.trace.bench import CONCURRENCY, STEPS, TraceBenchRow
from placer.units import gib


def trace_bench_answer(rows: Sequence[TraceBenchRow]) -> RenderableType:
    """One line per size: where time grows linearly, ids/s stays or rises."""
    head = f"import, write, read, and replay of {STEPS:,} decode steps of {CONCURRENCY} requests"
    table = Table(box=None, pad_edge=False)
    for header in ("ids", "tokens", "import", "write", "read", "replay", "ids/s", "peak memory"):
        table.add_column(header, justify="right")
    for row in rows:
        table.add_row(
            f"{row.ids:,}",
            f"{row.tokens:,}",
            *(f"{seconds:.2f} s" for seconds in (row.import_s, row.write_s, row.read_s, row.replay_s)),
            f"{row.ids_per_s / 1e6:,.1f} M",
            gib(row.peak_bytes),
        )
    return Group(VerdictLine(head), table)
