"""What `placer compare` prints: the verdict, one row per way of running the model, the sizing rule, and origins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from placer.answer.console import WIDTH
from placer.answer.part import VerdictLine, note_lines
from placer.answer.visible import all_visible
from placer.units import GIB, counted, duration, figure, gib, percent, rounded


def comparison_answer(document: dict[str, Any]) -> RenderableType:
    """The `compare` document in at most 100 columns."""
    document = all_visible(document)
    rows = document["rows"]
    parts: list[RenderableType] = [
        VerdictLine(f"{document['model']}: {document['verdict']}"),
        *([VerdictLine(f"  do: {document['advice']}")] if document["advice"] else []),
        Text(f"  {_asked(document)}"),
        Text(""),
    ]
    if any(row["fits"] for row in document["rows"]):
        parts.append(_Rows(document))
        if any(place is not None for place in document["best_by_gpus"].values()):
            parts.append(Text("* wins on its number of GPUs" + _targets(document), style="dim"))
    parts += [Text(line) for line in (*_stopped(rows), *_rounding(rows), *_obstacles(rows))]
    parts.append(Text(""))
    parts += [Text(_rule_line(size, rule)) for size, rule in document["rule_of_thumb"].items()]
    parts += [Text(line, style="dim") for line in _origins(document["rows"])]
    parts += note_lines(document["notes"])
    return Group(*parts)


def _asked(document: dict[str, Any]) -> str:
    workload, hardware = document["workload"], document["hardware"]
    if workload["arrivals"] is not None:
        who = f"{workload['arrivals']:,} given arrivals over {rounded(workload['arrivals_span_s'], 4)} s"
    elif workload["rate_per_s"] is not None:
        who = f"{workload['rate_per_s']:g} requests per second"
    else:
        who = counted(workload["concurrency"], "client")
    if workload["arrivals"] is not None or workload["rate_per_s"] is not None:
        who += f", at most {workload['concurrency']:,} running at once (--concurrency)"
    return (
        f"{who}, {workload['prompt_tokens']:,} + {workload['output_tokens']:,} tokens, {workload['kv_dtype']} KV; "
        f"{hardware['gpu']} with {gib(hardware['budget_bytes_per_gpu'])} each, {hardware['cpu']} "
        f"({hardware['cpu_method'] or 'no kernel of it runs this model by default'})"
    )


def _targets(document: dict[str, Any]) -> str:
    slo = document["workload"]["slo"]
    return " under the targets" if slo["tpot_ms"] is not None or slo["ttft_ms"] is not None else ""


@dataclass(frozen=True)
class _Column:
    """A column of the table: its header, and what it says of a row."""

    header: str
    cell: Callable[[dict[str, Any]], str]


class _Rows:
    """The table of rows, with as many of its columns as fit: numbers are neither cut nor wrapped."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._winners = set(document["best_by_gpus"].values())
        self._rows = document["rows"]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The widest of the tables that `options` leave room for, and what it leaves out."""
        left_out = self._left_out(console, options, options.max_width)
        yield self._table([column for column in _COLUMNS if column not in left_out])
        # No answer is wider than `WIDTH`, whatever the terminal.
        never = self._left_out(console, options, max(WIDTH, options.max_width))
        wider = [column for column in left_out if column not in never]
        for where, columns in (
            ("a wider terminal also shows", wider),
            ("columns that only --json has", never),
        ):
            if columns:
                headers = ", ".join(column.header.replace("\n", " ") for column in columns)
                yield Text(f"{where}: {headers}", style="dim")

    def _left_out(self, console: Console, options: ConsoleOptions, width: int) -> Sequence[_Column]:
        """Columns that a table of at most so many columns of text has no room for."""
        unbounded = options.update(max_width=_UNBOUNDED)
        for left_out in _NARROWER:
            table = self._table([column for column in _COLUMNS if column not in left_out])
            if Measurement.get(console, unbounded, table).maximum <= width:
                break
        return left_out

    def _table(self, columns: Sequence[_Column]) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("", no_wrap=True)
        table.add_column("GPUs", justify="right", no_wrap=True)
        table.add_column("mode", no_wrap=True)
        for column in columns:
            table.add_column(column.header, justify="right", no_wrap=True)
        for place, row in enumerate(self._rows):
            if row["fits"]:
                table.add_row(
                    _mark(row, place in self._winners),
                    str(row["gpus"]),
                    _mode(row),
                    *(column.cell(row) for column in columns),
                )
        return table


def _mark(row: dict[str, Any], wins: bool) -> str:
    if wins:
        return "*"
    return "-" if not row["runs"] else "=" if row["unstreamed_reason"] else ""


def _held_gib(row: dict[str, Any]) -> str:
    ledger = row["hbm"]["ledger"]
    return f"{(sum(ledger.values()) - ledger['unused']) / GIB:,.1f}"


def _band(row: dict[str, Any]) -> str:
    rate = row["output_tokens_per_s"]
    return f"({_short(rate['low'])}-{_short(rate['high'])})"


_RATE = _Column("tokens/s", lambda row: _short(row["output_tokens_per_s"]["mid"]))
_BAND = _Column("(low-high)", _band)
_PER_GPU = _Column("per GPU", lambda row: _short(row["output_tokens_per_s_per_gpu"]))
_RUNNING = _Column("at\nonce", lambda row: f"{row['max_running_requests']:,}")
_TPOT_P50 = _Column("TPOT\np50", lambda row: _latency(row["tpot_ms"]["p50"]))
_TPOT_P95 = _Column("TPOT\np95", lambda row: _latency(row["tpot_ms"]["p95"]))
_TTFT_P50 = _Column("TTFT\np50", lambda row: _latency(row["ttft_ms"]["p50"]))
_TTFT_P95 = _Column("TTFT\np95", lambda row: _latency(row["ttft_ms"]["p95"]))
_HBM = _Column("HBM\nGiB", _held_gib)
_HOST = _Column("host\nGiB", lambda row: f"{row['host']['total_bytes'] / GIB:,.0f}")
_KV = _Column("KV\nmost", lambda row: _tokens(row["max_kv_tokens"]))
_COLUMNS = (_RATE, _BAND, _PER_GPU, _RUNNING, _TPOT_P50, _TPOT_P95, _TTFT_P50, _TTFT_P95, _HBM, _HOST, _KV)
_SPARE = (_PER_GPU, _TTFT_P50, _TPOT_P50, _KV, _RUNNING, _HOST, _BAND, _HBM, _TTFT_P95)
_UNBOUNDED = 10_000
"""Columns of a terminal that cuts nothing."""
_NARROWER = tuple(_SPARE[:count] for count in range(len(_SPARE) + 1))
"""Columns that ever narrower tables leave out, what is asked for least often first."""


def _way(row: dict[str, Any]) -> str:
    cache = {None: "", "none": " bare", "lru": " lru"}[row["cache"]]
    return f"{row['mode']}{cache}"


def _mode(row: dict[str, Any]) -> str:
    return f"{_way(row)} {row['parallelism']}"


def _short(value: float) -> str:
    """Three digits at least: 1,455, 23.4, 0.512."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else figure(value, 2)


def _latency(value_ms: float | None) -> str:
    return "grows" if value_ms is None else duration(1e3 * value_ms, 3)


def _tokens(count: int) -> str:
    return (
        f"{count / 1e6:,.1f}M" if count >= 1e6 else f"{count / 1e3:,.0f}k" if count >= 1e4 else f"{count:,}"
    )


def _obstacles(rows: list[dict[str, Any]]) -> list[str]:
    """One line for rows that do not fit, those that break alike on the same GPUs together."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in rows:
        if not row["fits"]:
            found.setdefault((row["gpus"], row["reason"]), []).append(row)
    lines = []
    for (gpus, reason), alike in found.items():
        modes = ", ".join(_mode(row) for row in alike)
        cures = alike[0]["remedies"]
        cure = f"; would fit: {' or '.join(cures)}" if cures else ""
        lines.append(f"does not fit on {gpus}: {modes}: {reason}{cure}")
    return lines


def _rule_line(size: str, rule: dict[str, Any]) -> str:
    said = (
        f"sizing rule ({figure(rule['parameters'] / 1e9, 1)} B parameters x {_bytes(rule['bytes_per_parameter'])} x "
        f"{rule['factor']:g}): {gib(rule['rule_bytes'])}, {rule['rule_gpus']} x {size}; exact ledger, gpu-only"
    )
    if rule["exact_gpus"] is None:
        return f"{said}: {rule['null_reasons']['exact_gpus']}"
    off = rule["rule_bytes"] / rule["exact_bytes"] - 1
    fewer = rule["rule_gpus"] - rule["exact_gpus"]
    gpus = f"{counted(abs(fewer), 'GPU')} {'more' if fewer > 0 else 'fewer'}" if fewer else "as many GPUs"
    beside = rule["exact_bytes"] - rule["exact_weights_bytes"]
    left_out = (
        f"; the rule leaves out {gib(beside)} beside the weights: driver, graphs, activations, fragmentation, KV"
        if beside > rule["exact_weights_bytes"]
        else ""
    )
    return (
        f"{said}: {gib(rule['exact_bytes'])} in all on {rule['exact_gpus']} ({rule['exact_parallelism']}), one request "
        f"at a time: the rule is {percent(abs(off))} {'above' if off > 0 else 'below'} the ledger and asks for {gpus}"
        f"{left_out}"
    )


def _bytes(count: float) -> str:
    return f"{count:g} byte{'s' if count > 1 else ''}"


def _stopped(rows: list[dict[str, Any]]) -> list[str]:
    """Why rows marked "-" never win, and why "=" streams nothing, each reason once."""
    reasons = dict.fromkeys(row["runs_reason"] for row in rows if row["fits"] and not row["runs"])
    unstreamed = dict.fromkeys(
        row["unstreamed_reason"] for row in rows if row["runs"] and row["unstreamed_reason"]
    )
    return [f"- runs nowhere: {reason}" for reason in reasons] + [f"= {reason}" for reason in unstreamed]


def _rounding(rows: list[dict[str, Any]]) -> list[str]:
    """Rows of whose host memory rounding takes more than 5 %, those that take as much together."""
    found: dict[tuple[int, int], list[str]] = {}
    for row in rows:
        rounding = (row["host"]["ledger"] or {}).get("pinned_rounding", 0)
        total_bytes = row["host"]["total_bytes"]
        if rounding and rounding > 0.05 * total_bytes:
            found.setdefault((total_bytes, rounding), []).append(_mode(row))
    return [
        f"{gib(rounding)} of the {gib(total_bytes)} of host memory of {', '.join(modes)} is rounding: torch pins whole "
        "powers of two of bytes"
        for (total_bytes, rounding), modes in found.items()
    ]


def _origins(rows: list[dict[str, Any]]) -> list[str]:
    """Every origin once, with the modes that it is of where modes differ."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for row in rows:
        for part, origin in row["provenance"].items():
            found.setdefault(part, {}).setdefault(origin, {})[_way(row)] = None
    lines = []
    for part, origins in found.items():
        for origin, ways in origins.items():
            of = f" in {', '.join(ways)}" if len(origins) > 1 else ""
            if part != "cold" or "hot-cold" in ways:
                lines.append(f"origin of {part}{of}: {origin}")
    return lines
