"""What `placer trace info` prints."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.console import sparkline
from placer.answer.part import VerdictLine, note_lines
from placer.answer.visible import all_visible, short_name
from placer.units import counted

_MOST_DOMAINS = 12
"""Domains whose matrix fits the width; more are left to --json."""


def trace_answer(document: dict[str, Any]) -> RenderableType:
    """The `trace info` document: the verdict with what decided it, then skew, locality, layers and domains."""
    document = all_visible(document)
    parts: list[RenderableType] = [
        VerdictLine(f"{document['verdict']}: {document['verdict_reason']}"),
        Text(f"do: {document['advice']}"),
        Text(""),
        _coverage(document),
        Text(""),
        *(Text(fact) for fact in _facts(document)),
        *(Text(line) for line in _layers(document)),
    ]
    if document["domain_overlap"] is not None:
        parts += [Text(""), *_domains(document["domain_overlap"])]
    elif document["domains"]:
        lost = " (counts do not tell which window is of which)" if document["kind"] == "counts" else ""
        parts.append(Text(_domain_names(document["domains"]) + lost))
    parts += note_lines(document["notes"])
    return Group(*parts)


def _domain_names(domains: list[str]) -> str:
    names = ", ".join(short_name(name) for name in domains[:_MOST_DOMAINS])
    more = f" and {len(domains) - _MOST_DOMAINS} more" if len(domains) > _MOST_DOMAINS else ""
    return f"{counted(len(domains), 'domain')}: {names}{more}"


def _coverage(document: dict[str, Any]) -> Table:
    heldout = document["heldout_coverage"]
    table = Table(box=None, pad_edge=False)
    for header in ("hottest experts of each layer", "serve", "of other requests (95 %)", "uniform null"):
        table.add_column(header, justify="left" if header.startswith("hottest") else "right")
    for share, served in document["coverage"].items():
        other = "not known"
        if heldout is not None:
            figures = heldout[share]
            other = f"{figures['mean']:.1%} ({figures['low']:.1%} to {figures['high']:.1%})"
        table.add_row(f"{share} %", f"{served:.1%}", other, f"{document['uniform_null'][share]:.1%}")
    return table


def _facts(document: dict[str, Any]) -> list[str]:
    whose = "request" if document["kind"] == "tokens" else "window"
    phases = document["phases"] or {}
    # What is said of a trace is said of its outputs where it holds prompts too.
    which = f" ({phases['decode']:,} of outputs, which all but 'prompts' is about)" if len(phases) > 1 else ""
    facts = [
        f"{document['kind']} trace: {document['tokens']:,} tokens{which}, {counted(document['requests'], whose)}, "
        f"{len(document['layers'])} layers of {document['experts']} experts, top-{document['top_k']}",
        f"Gini {document['gini']:z.3f} ({document['uniform_null_gini']:.3f} by chance); the hottest expert of a layer "
        f"has {document['max_over_mean']:.1f} times the mean ({document['uniform_null_max_over_mean']:.1f} by chance)",
    ]
    reuse = document["lag1_reuse"]
    if reuse is None:
        facts.append(f"reuse by the next token: not known ({document['null_reasons']['lag1_reuse']})")
    else:
        facts.append(
            f"an expert of a token is chosen again by the next token in {reuse:.1%} "
            f"({document['popularity_lag1_reuse']:.1%} by popularity alone, "
            f"{document['uniform_null_lag1_reuse']:.1%} by chance)"
        )
    distinct = ", ".join(
        f"{count:.1f} at {batch} ({document['uniform_null_distinct_experts'][batch]:.1f})"
        for batch, count in document["distinct_experts"].items()
    )
    facts.append(f"distinct experts per layer by batch (by chance): {distinct}")
    if (lru := document["lru_hit_share"]) is not None:
        found = ", ".join(f"{share['50']:.1%} at {running}" for running, share in lru.items())
        facts.append(
            f"an LRU cache of half of each layer's experts finds, by running requests: {found} (the hottest half "
            f"serves {document['coverage']['50']:.1%} at any number)"
        )
    if (prefill := document["prefill"]) is not None:
        facts.append(
            f"prompts: the hottest half serves {prefill['coverage']['50']:.1%} "
            f"({prefill['uniform_null']['50']:.1%} by chance); their hottest quarter shares "
            f"{prefill['jaccard_25_with_decode']:.2f} with the outputs' (Jaccard; chance 0.14)"
        )
    if (alone := document["counts_alone"]) is not None:
        decode, chunk = alone["decode_64"], alone["prefill_512"]
        facts.append(
            "had only counts been recorded, replay would be off: steps of 64 by "
            f"{decode['distinct']:+z.1%} distinct experts and {decode['spread']:+z.0%} spread between steps, chunks of "
            f"512 by {chunk['distinct']:+z.1%} and {chunk['heaviest']:+z.0%} rows of the heaviest expert"
        )
    return facts


def _layers(document: dict[str, Any]) -> list[str]:
    """A line of bars per figure, one bar per MoE layer from the first to the last."""
    profile, layers = document["layer_profile"], document["layers"]
    lines = ["", f"by layer, {layers[0]} to {layers[-1]}:"]
    for label, name in (("Gini", "gini"), ("25 % serve", "coverage_25"), ("reuse", "lag1_reuse")):
        values = profile[name]
        if values is not None:
            ends = f"{min(values):.2f} to {max(values):.2f}"
            lines.append(f"{label:>10}  {ends}  {sparkline(values, max(values))}")
    return lines


def _domains(overlap: dict[str, Any]) -> list[RenderableType]:
    """What the row's hottest half serves of the column's selections, and how many hot experts they share."""
    names, most = [short_name(name) for name in overlap["domains"]], _MOST_DOMAINS
    shown = sorted(sorted(range(len(names)), key=lambda at: -overlap["tokens"][at])[:most])
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("the hottest half of", no_wrap=True, overflow="ellipsis", max_width=28)
    for number in range(1, len(shown) + 1):
        table.add_column(f"{number:>4}", justify="right", no_wrap=True)
    for number, row in enumerate(shown, start=1):
        served = [f"{100 * overlap['coverage_50'][row][column]:.0f}" for column in shown]
        table.add_row(Text(f"{number} {names[row]}"), *served)
    parts: list[RenderableType] = [
        Text("by domain, % of the column's selections served (diagonal: halves of its own requests):"),
        table,
    ]
    jaccard = overlap["jaccard_25"]
    pairs = [(jaccard[a][b], names[a], names[b]) for a in shown for b in shown if a < b]
    least, highest = min(pairs), max(pairs)
    parts.append(
        Text(
            f"shared among hottest quarters (Jaccard): least {least[0]:.2f} ({least[1]}, {least[2]}), most "
            f"{highest[0]:.2f} ({highest[1]}, {highest[2]}); equal domains 1, chance 0.14"
        )
    )
    if len(shown) < len(names):
        parts.append(Text(f"{len(names) - len(shown)} smaller domains are in --json alone"))
    if overlap["left_out"]:
        parts.append(
            Text(
                "left out: "
                + "; ".join(f"{short_name(name)} ({reason})" for name, reason in overlap["left_out"].items())
            )
        )
    return parts
