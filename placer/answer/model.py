"""What `placer inspect` prints."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.part import VerdictLine
from placer.answer.visible import all_visible
from placer.units import gib


def model_answer(document: dict[str, Any]) -> RenderableType:
    """The `inspect` document as a table a person reads in ten seconds."""
    document = all_visible(document)
    layers = document["moe_layers"]
    size, form = document["expert_bytes"], document["expert_format"]
    per_layer, all_experts = document["experts"], document["experts"] * len(layers)
    head = VerdictLine(
        f"{document['model']}: {len(layers)} MoE layers of {document['num_layers']}, {per_layer} experts, "
        f"top-{document['top_k']}, {document['parameters']['total'] / 1e9:,.2f} B parameters"
    )
    experts = Table(box=None, pad_edge=False)
    for header in ("one expert", "format", "size", "all experts"):
        experts.add_column(header, justify="left" if header in ("one expert", "format") else "right")
    for place, label in (
        ("checkpoint", "in the checkpoint"),
        ("gpu", "hot, on the GPU"),
        ("cpu", "cold, on the CPU"),
    ):
        experts.add_row(label, form[place], gib(size[place]), gib(size[place] * all_experts))
    rest = Table(title=f"per GPU at tp {document['tp']}", title_justify="left", box=None, pad_edge=False)
    rest.add_column("line")
    rest.add_column("size", justify="right")
    for name, count in document["weights_bytes_per_gpu"].items():
        if count:
            rest.add_row(f"{name} weights", gib(count))
    for dtype, count in document["kv_bytes_per_token_per_gpu"].items():
        rest.add_row(f"KV per token, {dtype}", f"{count:,} B")
    if state := document["state_bytes_per_request_per_gpu"]:
        rest.add_row("state per request", gib(state))
    origin = Text(
        "\n".join(f"origin of {key}: {value}" for key, value in document["provenance"].items()), style="dim"
    )
    return Group(head, Text(""), experts, Text(""), rest, Text(""), origin)
