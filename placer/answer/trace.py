"""What `placer trace info` prints."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.visible import all_visible

LEAST_SELECTIONS = 20
"""Selections per expert and layer below which chance alone orders the experts (a spread of 22 %)."""
LEAST_REQUESTS = 3
"""A trace is split by request into three parts: to solve, to choose and to report on."""


def trace_answer(document: dict[str, Any]) -> RenderableType:
    """The `trace info` document: skew beside what a uniform router would show at the same sample size."""
    document = all_visible(document)
    gain = document["coverage"]["50"] - document["uniform_null"]["50"]
    verdict = (
        "useful: the hottest half of the experts serves clearly more than by chance"
        if gain > 0.05
        else "flat: hot experts serve hardly more than by chance, static placement gains little"
    )
    too_little = _too_little(document)
    if too_little is not None:
        verdict = f"too little data to tell: {too_little}"
    head = Text(
        f"{verdict} ({document['coverage']['50']:.1%} against {document['uniform_null']['50']:.1%})",
        style="bold",
    )
    table = Table(box=None, pad_edge=False)
    for header in ("hottest experts of each layer", "serve", "uniform null"):
        table.add_column(header, justify="left" if header.startswith("hot") else "right")
    for share, served in document["coverage"].items():
        table.add_row(f"{share} %", f"{served:.1%}", f"{document['uniform_null'][share]:.1%}")
    layers = document["layers"]
    facts = [
        f"{document['kind']} trace: {document['tokens']:,} tokens, {document['requests']:,} requests or windows, "
        f"{len(layers) if isinstance(layers, list) else layers} layers of {document['experts']} experts, "
        f"top-{document['top_k']}",
        f"Gini {document['gini']:z.3f}",
    ]
    if document["lag1_reuse"] is not None:
        facts.append(
            f"an expert of a token is chosen again by the next token in {document['lag1_reuse']:.1%}"
        )
    if document["distinct_experts"] is not None:
        distinct = ", ".join(
            f"{count:.1f} at {batch}" for batch, count in document["distinct_experts"].items()
        )
        facts.append(f"distinct experts per layer by batch: {distinct}")
    if document["domains"]:
        facts.append(f"{len(document['domains'])} domains: {', '.join(map(str, document['domains']))}")
    return Group(head, Text(""), table, Text(""), *[Text(fact) for fact in facts])


def _too_little(document: dict[str, Any]) -> str | None:
    """What a trace has too little of to be judged, or None."""
    experts = document["experts"]
    each = document["tokens"] * document["top_k"] / experts
    if each < LEAST_SELECTIONS:
        needed = -(-LEAST_SELECTIONS * experts // document["top_k"])
        return f"{document['tokens']:,} tokens of the {needed:,} that {experts} experts need; record more"
    if document["requests"] < LEAST_REQUESTS:
        return f"{document['requests']} request(s), of {LEAST_REQUESTS} that solving needs; record more"
    return None
