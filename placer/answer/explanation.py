"""What `placer explain` prints: one expert's reasons in sentences, or a layer as a table."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.part import InFull, Usually, VerdictLine
from placer.answer.visible import visible
from placer.answer.worth import room_worth
from placer.explanation import ExpertPlace, Explanation
from placer.units import duration, gib

SHOWN = 12
"""Experts of a layer shown on either side of the border between hot and cold."""


def explanation_answer(found: Explanation) -> RenderableType:
    """The layer or the expert that was asked for."""
    answer = _layer(found) if found.expert is None else _expert(found, found.places[0])
    if found.calibration is None:
        return answer
    return Group(answer, Text(f"costs behind these values: {visible(found.calibration)}", style="dim"))


def _expert(found: Explanation, place: ExpertPlace) -> RenderableType:
    where = "hot" if place.hot else "cold"
    lines = [
        VerdictLine(
            f"layer {place.layer}, expert {place.expert} is {where}: rank {place.rank:,} of all experts by value"
        ),
        Text(f"being hot saves {_value(found, place)} (all other experts staying where they are)"),
    ]
    if place.hot:
        lines.append(
            Text(f"making it cold frees {gib(found.expert_bytes)} per GPU{_tokens(found)}{_swap_in(found)}")
        )
    elif found.least_hot is not None:
        lines.append(
            Text(
                f"it takes {gib(found.expert_bytes)} per GPU{_tokens(found)}; the hot expert worth least is "
                f"{_name(found.least_hot)}, which saves {duration(found.least_hot.value_us)}"
            )
        )
    if found.exchange_us is not None:
        lines.append(Text(_exchange(found, found.exchange_us)))
    if found.held_by is not None:
        lines.append(Text(f"the layer's {found.hot} hot experts are held by {found.held_by}"))
    return Group(*lines, *_multiplier(found))


def _layer(found: Explanation) -> RenderableType:
    held = "" if found.held_by is None else f" (held by {found.held_by})"
    head = VerdictLine(f"layer {found.layer}: {found.hot} of {found.experts} experts hot{held}")
    border = sum(place.hot for place in found.places)
    shown = [
        place for at, place in enumerate(found.places) if at < SHOWN // 2 or abs(at - border) <= SHOWN // 2
    ]
    left_out = len(found.places) - len(shown)
    note = [Text(f"{left_out} of {len(found.places)} experts not shown (-v shows all)", style="dim")]
    return Group(
        head,
        Text(""),
        Usually(_table(shown), *(note if left_out else [])),
        InFull(_table(found.places)),
        Text(""),
        *_multiplier(found),
    )


def _table(places: Sequence[ExpertPlace]) -> Table:
    table = Table(box=None, pad_edge=False)
    for header in ("expert", "place", "saves per output token", "per GiB", "rank of all"):
        table.add_column(header, justify="left" if header == "place" else "right")
    for place in places:
        table.add_row(
            str(place.expert),
            "hot" if place.hot else "cold",
            duration(place.value_us),
            duration(place.value_us_per_gib),
            f"{place.rank:,}",
        )
    return table


def _multiplier(found: Explanation) -> list[Text]:
    if found.price_us_per_gib is None:
        return []
    if not found.price_us_per_gib:
        return [Text("multiplier of the budget: zero, as memory is not what limits this plan")]
    said, _ = room_worth(found.price_us_per_gib, found.expert_bytes, found.objective_us, "per output token")
    return [Text(f"multiplier of the budget: {said} to first order; experts above it belong on the GPU")]


def _value(found: Explanation, place: ExpertPlace) -> str:
    share = f" ({place.value_us / found.objective_us:+.3%})" if found.objective_us else ""
    return f"{duration(place.value_us)} per output token{share}, {duration(place.value_us_per_gib)} per GiB and GPU"


def _tokens(found: Explanation) -> str:
    return "" if found.expert_kv_tokens is None else f", the room of {found.expert_kv_tokens:,} KV tokens"


def _swap_in(found: Explanation) -> str:
    if found.best_cold is None:
        return ""
    return (
        f"; the best cold expert, {_name(found.best_cold)}, would save {duration(found.best_cold.value_us)} "
        "in its place"
    )


def _exchange(found: Explanation, saved_us: float) -> str:
    """Why the plan does without an exchange that would save time."""
    said = f"changing places would save {duration(saved_us)} per output token{_share(found, saved_us)}"
    if found.open_us is not None and saved_us <= found.open_us:
        left = f"{duration(found.open_us)}{_share(found, found.open_us)}"
        return f"{said}: less than the {left} that the proven gap leaves open"
    if found.not_only_values is not None:
        return f"{said}, but {found.not_only_values}"
    return f"{said} if both moves counted as each does by itself; where they share a layer's time they do not add up"


def _share(found: Explanation, saved_us: float) -> str:
    return f" ({100 * saved_us / found.objective_us:.2g}%)" if found.objective_us else ""


def _name(place: ExpertPlace) -> str:
    return f"layer {place.layer} expert {place.expert}"
