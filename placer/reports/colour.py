"""Colours of the report's figures, for light and dark pages alike."""

from placer.reports.layer_time import ALL_COLD, ALL_HOT
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

_PARTS = dict(zip(("hot", "waiting for cold", "transfer"), _DISTINCT, strict=False))
_PLACEMENTS = {
    COLD_TIME: _DISTINCT[4],
    ALL_COLD: _DISTINCT[4],
    ALL_HOT: _DISTINCT[3],
    "frequency": _DISTINCT[5],
    "frequency_per_layer": _MORE[5],
    "uniform": _DISTINCT[7],
    "front_loading": _DISTINCT[6],
    "random": _MORE[6],
}

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
    return _PARTS.get(name, _MORE[1])


def placement_colour(name: str) -> str:
    """Colour of the line of a placement that layers are compared under; no part of a layer's time has it."""
    return _PLACEMENTS.get(name, _MORE[7])


def is_dashed(name: str) -> bool:
    """Whether the line is dashed: of placements that no plan is, and that share a colour with others."""
    return name in (ALL_HOT, ALL_COLD)
