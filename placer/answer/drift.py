"""What `placer trace compare` prints."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.part import VerdictLine, note_lines
from placer.drift import Advice, Drift
from placer.units import counted, duration, percent

_WHAT = {
    Advice.KEEP: "keep the plan",
    Advice.RESOLVE: "re-solve on B",
    Advice.RECORD_MORE: "keep the plan for now, and record more requests of B",
}


def drift_answer(found: Drift) -> RenderableType:
    """The advice with what decided it, then the plan on both traces beside a re-solve."""
    table = Table(box=None, pad_edge=False)
    for header in ("predicted", "decode step", "per output token", "coverage"):
        table.add_column(header, justify="left" if header == "predicted" else "right")
    for name, figures in (
        ("plan on A", found.home),
        ("plan on B", found.plan),
        ("re-solved on B", found.resolved),
    ):
        table.add_row(
            name,
            duration(1e3 * figures.decode_step_ms),
            duration(figures.output_token_us),
            percent(figures.coverage),
        )
    settings = found.settings
    lines = [
        f"{found.moved_experts:,} of {found.hot_total:,} hot experts would change; settings stay: "
        f"{counted(settings.max_running_requests, 'running request')}, chunk {settings.chunk_tokens}, "
        f"{settings.kv_tokens:,} KV tokens",
    ]
    if found.no_interval is not None:
        lines.append(f"no confidence interval: {found.no_interval}")
    return Group(
        VerdictLine(f"{_WHAT[found.advice]}: {found.reason}"),
        Text(""),
        table,
        Text(""),
        *(Text(line) for line in lines),
        *note_lines(found.notes),
    )
