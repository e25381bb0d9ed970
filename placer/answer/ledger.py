"""One GPU's memory as a bar with a table below it: which purpose takes how many bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from placer.units import gib, percent

BAR_WIDTH = 64
"""Marks of the bar where the terminal has room for them."""
_UNUSED = "unused"
_GROUPS = (
    ("hot experts", "█", "red", ("hot_experts", "repacking", "mtp")),
    (
        "other weights",
        "▓",
        "magenta",
        ("attention", "router", "shared_experts", "dense", "norms", "embedding", "other"),
    ),
    ("KV", "▒", "cyan", ("kv_pool", "request_state")),
    ("runtime", "░", "yellow", ()),
    (_UNUSED, "·", "dim", (_UNUSED,)),
)
"""Name, mark and colour of what the bar shows as one, and its lines; the runtime's are all that no other names."""


def ledger_parts(title: str, ledger: Mapping[str, int], budget_bytes: int) -> list[RenderableType]:
    """The bar of ``ledger`` (bytes by purpose, ``unused`` below zero where it does not fit), its key and its lines."""
    table = Table(box=None, pad_edge=False)
    for header in ("", "line", "size", "share"):
        table.add_column(header, justify="right" if header in ("size", "share") else "left", no_wrap=True)
    for name, size in ledger.items():
        if size:
            _, mark, colour, _ = _GROUPS[_group(name)]
            table.add_row(Text(mark, style=colour), name, gib(size), percent(size / budget_bytes))
    return [Text(f"{title}: {gib(budget_bytes)}"), *_bar(ledger), table]


def part_sizes(ledger: Mapping[str, int]) -> dict[str, int]:
    """Bytes of every part that a ledger is shown in, by name: hot experts, other weights, KV, runtime, unused."""
    sizes = dict.fromkeys((name for name, *_ in _GROUPS), 0)
    for name, size in ledger.items():
        sizes[_GROUPS[_group(name)][0]] += max(size, 0)
    return sizes


def _group(name: str) -> int:
    return next((at for at, group in enumerate(_GROUPS) if name in group[3]), len(_GROUPS) - 2)


def _bar(ledger: Mapping[str, int]) -> list[RenderableType]:
    """The groups beside each other, and what their marks stand for; a group that takes anything gets a mark."""
    sizes = list(part_sizes(ledger).values())
    total = sum(sizes)
    if not total:
        return []
    key = Text(" ")
    for (name, mark, colour, _), size in zip(_GROUPS, sizes, strict=True):
        if size:
            key.append(f" {mark}", style=colour)
            key.append(f" {name} ")
    key.rstrip()
    return [_Bar(sizes), key]


@dataclass(frozen=True)
class _Bar:
    """A bar of ``sizes``, one per group, on one line of whatever width there is."""

    sizes: Sequence[int]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, total = min(BAR_WIDTH, options.max_width - len("[]")), sum(self.sizes)
        # Rounding the borders, not the lengths, keeps the bar's width.
        borders = [round(width * each / total) for each in accumulate(self.sizes, initial=0)]
        bar = Text("[")
        for (_, mark, colour, _), (start, end) in zip(_GROUPS, pairwise(borders), strict=True):
            bar.append(mark * (end - start), style=colour)
        bar.append("]")
        yield bar
