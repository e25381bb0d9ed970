"""What `placer solve --what-if` prints: one row per change, with what it does to the plan's figures."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from placer.open_loop import ttft_without_value
from placer.placement import PlacementDocument
from placer.units import duration, figure, signed_percent
from placer.what_if_section import WhatIfSection

_HEADERS = ("what if", "tokens/s", "TPOT p95", "TTFT p95", "hot", "KV tokens")


def what_if_parts(document: PlacementDocument) -> list[RenderableType]:
    """The table of a placement's changes with its notes; nothing where none were asked for."""
    rows = document.what_if
    if not rows:
        return []
    table = Table(
        title="what if, all else as planned (change of the figure in brackets; targets left out)",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for header in _HEADERS:
        table.add_column(header, justify="left" if header == "what if" else "right")
    predicted, without = document.predicted, ttft_without_value(document)
    table.add_row(
        "this plan",
        figure(predicted.output_tokens_per_s, 1),
        _latency(predicted.tpot_ms.p95),
        _latency(predicted.ttft_ms.p95, without),
        f"{document.hot_total:,}",
        f"{document.kv.tokens:,}",
    )
    for row in rows:
        if row.fits:
            table.add_row(*_cells(row, without))
    return [table, *(Text(f"  {note}") for note in _notes(rows)), *_origins(rows), Text("")]


def _cells(row: WhatIfSection, without: str) -> tuple[str, ...]:
    """``without`` stands for a TTFT that has no value."""
    gained = row.gained or {}

    def changed(shown: str, name: str) -> str:
        return f"{shown} ({signed_percent(gained[name])})" if name in gained else shown

    return (
        f"{row.text}{' *' if row.regime else ''}",
        changed(figure(row.output_tokens_per_s or 0.0, 1), "output_tokens_per_s"),
        changed(_latency(row.tpot_ms_p95), "tpot_ms_p95"),
        changed(_latency(row.ttft_ms_p95, without), "ttft_ms_p95"),
        f"{row.hot_experts:,}",
        f"{row.kv_tokens:,}",
    )


def _notes(rows: Sequence[WhatIfSection]) -> list[str]:
    """Borders that are crossed, and what does not fit or cannot be told."""
    crossed = [f"* {row.regime}" for row in rows if row.regime and row.fits]
    return crossed + [f"{row.text}: {row.problem}" for row in rows if not row.fits]


def _origins(rows: Sequence[WhatIfSection]) -> list[Text]:
    """Where figures come from, the changes that share an origin together."""
    shared: dict[str, list[str]] = {}
    for row in rows:
        if row.fits:
            shared.setdefault(row.origin, []).append(row.text)
    most = max((len(texts) for texts in shared.values()), default=0)
    return [
        Text(f"  origin of {'the others' if len(texts) == most else ', '.join(texts)}: {origin}", style="dim")
        for origin, texts in sorted(shared.items(), key=lambda entry: len(entry[1]))
    ]


def _latency(ms: float | None, without: str = "unknown") -> str:
    return without if ms is None else duration(1e3 * ms, 3)
