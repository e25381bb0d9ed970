"""`placer.trace_bench`: how long traces take here."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placer.api.checked import checked
from placer.api.opened import Source
from placer.api.progress import Progress, silent
from placer.api.routing import known_model
from placer.model.spec import ModelSpec
from placer.profiler.trace.bench import TraceBenchRow, bench_file, bench_sizes, bench_trace


@dataclass(frozen=True)
class TraceBench:
    """Times and memory of import and replay, a row for each size."""

    rows: tuple[TraceBenchRow, ...]

    def document(self) -> dict[str, Any]:
        """What ``trace bench --json`` prints."""
        return {"rows": [asdict(row) for row in self.rows]}


@checked
def trace_bench(
    source: Source | None = None,
    *,
    ids: int = 100_000_000,
    model: ModelSpec | Source | None = None,
    progress: Progress = silent,
) -> TraceBench:
    """Time import and replay of synthetic traces of growing size up to ``ids`` routed ids, or of ``source`` alone.

    Raises
    ------
    BadInputError
        When ``ids`` is out of range, or ``source`` cannot be imported or holds no decode tokens.
    """
    if source is not None:
        return TraceBench((bench_file(Path(source), known_model(model)),))
    return TraceBench(tuple(bench_trace(bench_sizes(ids), progress=progress)))
