"""Colours of the report's figures, for light and dark pages alike."""

from placer.reports.layer_time import COLD as COLD_TIME
from placer.reports.ledger import Ledger

HOT = ((0.0, "#f6d9a8"), (0.5, "#ee7d2b"), (1.0, "#b5121b"))
"""Scale of hot experts by what they are worth."""
COLD = ((0.0, "#cfdbe8"), (0.5, "#5b93c9"), (1.0, "#163f8f"))
"""Scale of cold experts by what they would be worth."""
UNUSED = "#b0b0b0"

# Okabe and Ito's set, which colour-blind readers can tell apart, then tints of it.
_DISTINCT = ("#d55e00", "#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7", "#999933", "#7f7f7f")
_MORE = ("#f0a875", "#80b8d8", "#80cfb9", "#f2cf80", "#aad9f4", "#e5bcd3", "#cccc99", "#bfbfbf")

USE_COLOURS = {
    "report": _DISTINCT[0],
    "choose": _DISTINCT[3],
    "fit": _DISTINCT[1],
    "idle": _DISTINCT[2],
    "": _DISTINCT[7],
}
"""Colours of timed calls by use."""


def line_colours(ledger: Ledger) -> tuple[str, ...]:
    """A colour for each line of ``ledger``."""
    wheel = (*_DISTINCT, *_MORE)
    return tuple(
        UNUSED if name == "unused" else wheel[at % len(wheel)] for at, (name, _) in enumerate(ledger.lines)
    )


def part_colour(name: str) -> str:
    """Colour of a part of a layer's time."""
    return _of(name, ("hot", "waiting for cold", "transfer"), _DISTINCT[4])


def placement_colour(name: str) -> str:
    """Colour of a placement that layers are compared under."""
    return _of(
        name,
        ("all experts hot", COLD_TIME, "frequency", "uniform", "frequency_per_layer", "random"),
        _DISTINCT[6],
    )


def _of(name: str, order: tuple[str, ...], other: str) -> str:
    return _DISTINCT[order.index(name)] if name in order else other
