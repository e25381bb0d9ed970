"""What `placer compare` prints: the verdict, one row per way of running the model, the sizing rule, and origins."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.part import VerdictLine, note_lines
from placer.answer.visible import all_visible
from placer.units import GIB, figure, gib, signed_percent


def comparison_answer(document: dict[str, Any]) -> RenderableType:
    """The `compare` document in at most 100 columns."""
    document = all_visible(document)
    parts: list[RenderableType] = [
        VerdictLine(f"{document['model']}: {document['verdict']}"),
        Text(f"  {_asked(document)}"),
        Text(""),
    ]
    if any(row["fits"] for row in document["rows"]):
        parts.append(_table(document))
        if any(place is not None for place in document["best_by_gpus"].values()):
            parts.append(Text("* wins on its number of GPUs" + _targets(document), style="dim"))
    parts += [Text(line) for line in _obstacles(document["rows"])]
    parts.append(Text(""))
    parts += [Text(_rule_line(size, rule)) for size, rule in document["rule_of_thumb"].items()]
    parts += [Text(line, style="dim") for line in _origins(document["rows"])]
    parts += note_lines(document["notes"])
    return Group(*parts)


def _asked(document: dict[str, Any]) -> str:
    workload, hardware = document["workload"], document["hardware"]
    if workload["arrivals"] is not None:
        who = f"{workload['arrivals']:,} given arrivals"
    elif workload["rate_per_s"] is not None:
        who = f"{workload['rate_per_s']:g} requests per second"
    else:
        who = f"{workload['concurrency']:,} client{'' if workload['concurrency'] == 1 else 's'}"
    return (
        f"{who}, {workload['prompt_tokens']:,} + {workload['output_tokens']:,} tokens, {workload['kv_dtype']} KV; "
        f"{hardware['gpu']} with {gib(hardware['budget_bytes_per_gpu'])} each, {hardware['cpu']} "
        f"({hardware['cpu_method']})"
    )


def _targets(document: dict[str, Any]) -> str:
    slo = document["workload"]["slo"]
    return " under the targets" if slo["tpot_ms"] is not None or slo["ttft_ms"] is not None else ""


def _table(document: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("")
    table.add_column("GPUs", justify="right")
    table.add_column("mode")
    for header in (
        "tokens/s",
        "(low-high)",
        "per GPU",
        "TPOT ms\np50/p95",
        "TTFT s\np50/p95",
        "HBM\nGiB",
        "host\nGiB",
        "KV\nmost",
    ):
        table.add_column(header, justify="right")
    winners = set(document["best_by_gpus"].values())
    for place, row in enumerate(document["rows"]):
        if not row["fits"]:
            continue
        rate, ledger = row["output_tokens_per_s"], row["hbm"]["ledger"]
        table.add_row(
            "*" if place in winners else "",
            str(row["gpus"]),
            _mode(row),
            _short(rate["mid"]),
            f"({_short(rate['low'])}-{_short(rate['high'])})",
            _short(row["output_tokens_per_s_per_gpu"]),
            _pair(row["tpot_ms"], 1.0),
            _pair(row["ttft_ms"], 1e-3),
            f"{(sum(ledger.values()) - ledger['unused']) / GIB:,.1f}",
            f"{row['host']['total_bytes'] / GIB:,.0f}",
            _tokens(row["max_kv_tokens"]),
        )
    return table


def _mode(row: dict[str, Any]) -> str:
    cache = {None: "", "none": " bare", "lru": " lru"}[row["cache"]]
    return f"{row['mode']}{cache} {row['parallelism']}"


def _short(value: float) -> str:
    """Three digits at least: 1,455, 23.4, 0.512."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else figure(value, 2)


def _pair(latency: dict[str, float | None], factor: float) -> str:
    values = (latency["p50"], latency["p95"])
    return "/".join("grows" if value is None else _short(value * factor) for value in values)


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
    gpus = "the same number" if not fewer else f"the rule is {abs(fewer)} {'above' if fewer > 0 else 'below'}"
    return (
        f"{said}: {gib(rule['exact_bytes'])} in all on {rule['exact_gpus']} ({rule['exact_parallelism']}), one request "
        f"at a time: bytes {signed_percent(off)}, GPUs: {gpus}"
    )


def _bytes(count: float) -> str:
    return f"{count:g} byte{'s' if count > 1 else ''}"


def _origins(rows: list[dict[str, Any]]) -> list[str]:
    """Every origin once."""
    said = {f"origin of {part}: {origin}": None for row in rows for part, origin in row["provenance"].items()}
    return list(said)
