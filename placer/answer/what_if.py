"""What `placer solve --what-if` prints: one row per change, with what it does to the plan's figures."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from placer.open_loop import ttft_without_value
from placer.placement import PlacementDocument
from placer.units import duration, figure, signed_percent
from placer.what_if_section import WhatIfSection

HEADERS = ("what if", "tokens/s", "TPOT p95", "TTFT p95", "hot", "KV tokens")


def what_if_parts(document: PlacementDocument) -> list[RenderableType]:
    """The table of a placement's changes with its notes; nothing where none were asked for."""
    if not document.what_if:
        return []
    table = Table(
        title="what if, all else as planned (change of the figure in brackets; targets left out)",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for header in HEADERS:
        table.add_column(header, justify="left" if header == "what if" else "right")
    for row in what_if_rows(document):
        table.add_row(*row)
    notes = (Text(f"  {note}") for note in what_if_notes(document.what_if))
    origins = (Text(f"  {origin}", style="dim") for origin in what_if_origins(document.what_if))
    return [table, *notes, *origins, Text("")]


def what_if_rows(document: PlacementDocument) -> tuple[tuple[str, ...], ...]:
    """Cells under `HEADERS`: the plan first, then every change that fits."""
    predicted, without = document.predicted, ttft_without_value(document)
    plan = (
        "this plan",
        figure(predicted.output_tokens_per_s, 1),
        _latency(predicted.tpot_ms.p95),
        _latency(predicted.ttft_ms.p95, without),
        f"{document.hot_total:,}",
        f"{document.kv.tokens:,}",
    )
    return (plan, *(_cells(row, without) for row in document.what_if or () if row.fits))


def _cells(row: WhatIfSection, without: str) -> tuple[str, ...]:
    """``without`` stands for a TTFT that has no value."""
    gained = row.gained or {}

    def changed(shown: str, name: str) -> str:
        return f"{shown} ({signed_percent(gained[name])})" if name in gained else shown

    return (
        _marked(row),
        changed(figure(row.output_tokens_per_s or 0.0, 1), "output_tokens_per_s"),
        changed(_latency(row.tpot_ms_p95), "tpot_ms_p95"),
        changed(_latency(row.ttft_ms_p95, without), "ttft_ms_p95"),
        f"{row.hot_experts:,}",
        f"{row.kv_tokens:,}",
    )


def _marked(row: WhatIfSection) -> str:
    return f"{row.text} *" if row.regime else row.text


def what_if_notes(rows: Sequence[WhatIfSection]) -> list[str]:
    """Borders that are crossed, and what does not fit or cannot be told."""
    crossed = [f"* {row.regime}" for row in rows if row.regime]
    return crossed + [f"{_marked(row)}: {row.problem}" for row in rows if not row.fits]


def what_if_origins(rows: Sequence[WhatIfSection]) -> list[str]:
    """Where figures come from, the changes that share an origin together."""
    shared: dict[str, list[str]] = {}
    for row in rows:
        if row.fits:
            shared.setdefault(row.origin, []).append(row.text)
    most = max((len(texts) for texts in shared.values()), default=0)
    return [
        f"origin of {'the others' if len(texts) == most else ', '.join(texts)}: {origin}"
        for origin, texts in sorted(shared.items(), key=lambda entry: len(entry[1]))
    ]


def _latency(ms: float | None, without: str = "unknown") -> str:
    return without if ms is None else duration(1e3 * ms, 3)
