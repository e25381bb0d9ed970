"""Draws a plan as one SVG picture for a document: GPU memory, hot experts by layer, and other placements.

python -m placer.examples.plan_picture placement.json -o docs/plan.svg
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from placer.answer.ledger import part_sizes
from placer.errors import MissingComponentError
from placer.examples.ending import end_with
from placer.extra import install_command
from placer.output import write_whole
from placer.placement import PlacementDocument, read_placement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#7d858f"
"""Of text and lines: a grey that is read on white and on black."""
PART_COLOURS = ("#d55e00", "#e69f00", "#0072b2", "#56b4e9", "#b0b0b0")
PLAN_COLOUR, OTHER_COLOUR = "#d55e00", "#80b8d8"
INCHES = (10.0, 2.6)
SHOWN_GIB = 0.3
"""Parts of the memory below this have no room for their name."""


def draw_plan(document: PlacementDocument, path: Path) -> None:
    """Write the picture of ``document`` to ``path``, whole or not at all; the same plan gives the same bytes.

    Raises
    ------
    BadInputError
        When ``path`` cannot be written.
    MissingComponentError
        When matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415  # a second, and optional
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingComponentError(
            "the picture is drawn with matplotlib, which is not installed", install_command("report")
        ) from None

    with mpl.rc_context(
        {
            "font.size": 8,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "text.parse_math": False,
            "svg.fonttype": "none",
            "svg.hashsalt": "placer",
        }
    ):
        figure = Figure(figsize=INCHES, layout="constrained")
        memory, layers, others = figure.subplots(1, 3, width_ratios=(1.0, 1.5, 1.5))
        _memory(document, memory)
        _layers(document, layers)
        _others(document, others)
        save = partial(
            figure.savefig, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
        write_whole(path, save)


# Nothing is clipped: matplotlib names clip paths by where they lie in memory.
def _memory(document: PlacementDocument, axes: "Axes") -> None:
    below = 0.0
    for (name, size), colour in zip(part_sizes(document.hbm.ledger).items(), PART_COLOURS, strict=True):
        size_gib = size / 2**30
        axes.bar(0, size_gib, bottom=below, color=colour, width=0.6, clip_on=False)
        if size_gib >= SHOWN_GIB:
            axes.text(0.38, below + size_gib / 2, f"{name}, {size_gib:.2f} GiB", va="center")
        below += size_gib
    axes.set_xlim(-0.4, 2.2)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_ylabel("GiB")
    axes.set_title("memory of a GPU", fontsize=8)


def _layers(document: PlacementDocument, axes: "Axes") -> None:
    layers = document.model.layers
    axes.bar(
        layers,
        [len(document.hot[str(layer)]) for layer in layers],
        color=PLAN_COLOUR,
        width=0.8,
        clip_on=False,
    )
    axes.set_ylim(0, document.model.experts)
    axes.set_xlabel("layer")
    axes.set_title(f"hot experts of {document.model.experts}", fontsize=8)


def _others(document: PlacementDocument, axes: "Axes") -> None:
    rows = {"this plan": document.predicted, **document.baselines}
    steps_ms = [figures.decode_step_ms for figures in rows.values()]
    bars = axes.barh(
        list(rows), steps_ms, color=[PLAN_COLOUR, *(OTHER_COLOUR for _ in document.baselines)], clip_on=False
    )
    axes.bar_label(bars, [f"{step:.1f}" for step in steps_ms], padding=2)
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.set_title("ms of a decode step (predicted), by placement", fontsize=8)


def main(arguments: Sequence[str]) -> int:
    """Draw one placement."""
    parser = argparse.ArgumentParser(prog="python -m placer.examples.plan_picture", description=__doc__)
    parser.add_argument("placement", type=Path, help="placement.json")
    parser.add_argument("-o", "--output", type=Path, default=Path("plan.svg"), help="SVG file to write")
    given = parser.parse_args(arguments)
    draw_plan(read_placement(given.placement), given.output)
    return 0


if __name__ == "__main__":
    end_with(lambda: main(sys.argv[1:]))
