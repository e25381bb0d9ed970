"""The figures of a report as PNG files for papers and slides, from the same data as the page."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from placer.errors import MissingComponentError
from placer.extra import install_command
from placer.output import output_folder, write_whole
from placer.reports.absent import Absent
from placer.reports.colour import (
    COLD,
    HOT,
    USE_COLOURS,
    is_dashed,
    line_colours,
    part_colour,
    placement_colour,
)
from placer.reports.cost_scatter import USES, CostScatter
from placer.reports.frontier import Frontier
from placer.reports.heat_map import HeatMap
from placer.reports.layer_time import DRAWN_BESIDE, LayerTimes
from placer.reports.ledger import Ledger
from placer.reports.report import Report
from placer.units import gib, percent
from placer.written_files import check_replaceable, record_written

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOTS_PER_INCH = 200
SMALL = 7
"""Points of legends and labels; 8 elsewhere."""

Draw = Callable[["Axes"], None]


def write_pictures(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write a PNG of 200 dots per inch for every figure that ``report`` holds; each appears whole or not at all.

    Raises
    ------
    MissingComponentError
        When matplotlib is not installed.
    BadInputError
        When ``folder`` cannot be written, or has a file of a picture's name that is not as placer wrote it there.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415  # a second, and optional
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingComponentError(
            "--png draws with matplotlib, which is not installed", install_command("report")
        ) from None
    pictures = {f"{name}.png": picture for name, picture in _pictures(report).items()}
    output_folder(folder, "--png")
    check_replaceable(folder, pictures, "--png")
    # Names out of files are shown as they are, never read as formulas.
    with mpl.rc_context({"font.size": 8, "text.parse_math": False}):
        for name, (inches, draw) in pictures.items():
            figure = Figure(figsize=inches, dpi=DOTS_PER_INCH, layout="constrained")
            draw(figure.subplots())
            write_whole(folder / name, partial(figure.savefig, format="png"), "--png")
            record_written(folder, [name], "--png")
    return tuple(folder / name for name in pictures)


def _pictures(report: Report) -> dict[str, tuple[tuple[float, float], Draw]]:
    """Size in inches and drawing of every picture, by file name."""
    tall = min(8.0, max(2.5, 1.0 + 0.06 * len(report.heat_map.layers)))
    found: dict[str, tuple[tuple[float, float], Draw]] = {
        "experts": ((7.0, tall), partial(_heat_map, report.heat_map))
    }
    for name, ledger in zip(("hbm", "host"), report.ledgers, strict=True):
        if ledger.lines:
            found[name] = ((7.0, 0.8 + 0.18 * len(ledger.lines)), partial(_ledger, ledger))
    if isinstance(report.frontier, Frontier):
        found["frontier"] = ((5.0, 3.4), partial(_frontier, report.frontier))
    if isinstance(report.layers, LayerTimes):
        found["layers"] = ((7.0, 3.4), partial(_layers, report.layers))
    if not isinstance(report.cost, Absent):
        for scatter in report.cost:
            found[f"cost-{scatter.side}"] = ((4.6, 4.2), partial(_cost, scatter))
    return found


def _heat_map(heat: HeatMap, axes: "Axes") -> None:
    from matplotlib.colors import LinearSegmentedColormap  # noqa: PLC0415

    worth = "" if heat.value_us is None else f": µs {heat.per_token} saved by being hot"
    for hot, name, scale in ((True, "hot", HOT), (False, "cold", COLD)):
        image = axes.imshow(
            heat.side(hot),
            cmap=LinearSegmentedColormap.from_list(name, scale),
            vmin=0.0,
            vmax=heat.strongest_us,
            aspect="auto",
            interpolation="none",
        )
        axes.figure.colorbar(image, ax=axes, label=name + worth, pad=0.01, aspect=40)
    rows = np.unique(np.linspace(0, len(heat.layers) - 1, min(len(heat.layers), 12)).round().astype(int))
    axes.set_yticks(rows, [str(heat.layers[row]) for row in rows])
    axes.set_xlabel("expert")
    axes.set_ylabel("layer")


def _ledger(ledger: Ledger, axes: "Axes") -> None:
    names = [name for name, _ in ledger.lines]
    sizes = [size / 2**30 for _, size in ledger.lines]
    bars = axes.barh(names, sizes, color=line_colours(ledger))
    axes.bar_label(
        bars,
        [f"{gib(size)}, {percent(ledger.share(size))}" for _, size in ledger.lines],
        fontsize=SMALL,
        padding=2,
    )
    axes.margins(x=0.25)
    axes.invert_yaxis()
    axes.set_xlabel("GiB")
    axes.set_title(ledger.title, fontsize=8, loc="left")


def _frontier(frontier: Frontier, axes: "Axes") -> None:
    for dtype in sorted({point.kv_dtype for point in frontier.points}):
        points = [point for point in frontier.points if point.kv_dtype == dtype]
        axes.plot(
            [point.kv_tokens for point in points],
            [point.output_tokens_per_s for point in points],
            marker="o",
            markersize=3,
            label=f"best plan, KV in {dtype}",
        )
    axes.plot(
        [point.kv_tokens for point in frontier.chosen],
        [point.output_tokens_per_s for point in frontier.chosen],
        linestyle="none",
        marker="*",
        markersize=11,
        color=HOT[-1][1],
        label="chosen",
    )
    axes.set_xlabel("KV tokens")
    axes.set_ylabel("output tokens/s")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=SMALL)


def _layers(times: LayerTimes, axes: "Axes") -> None:
    at = np.arange(len(times.layers))
    below = np.zeros(len(at))
    for name, part in times.parts.items():
        axes.bar(at, part, bottom=below, label=name, color=part_colour(name))
        below = below + part
    for name in DRAWN_BESIDE:
        if name in times.beside:
            axes.step(
                at,
                times.beside[name],
                where="mid",
                linewidth=0.9,
                linestyle="--" if is_dashed(name) else "-",
                label=name,
                color=placement_colour(name),
            )
    shown = np.unique(np.linspace(0, len(at) - 1, min(len(at), 16)).round().astype(int))
    axes.set_xticks(shown, [str(times.layers[each]) for each in shown])
    axes.set_xlabel("layer")
    axes.set_ylabel("ms of a decode step")
    axes.set_title("time of a decode step by layer and part", fontsize=8, loc="left")
    axes.legend(fontsize=SMALL, ncols=3)


def _cost(scatter: CostScatter, axes: "Axes") -> None:
    ends = np.array(scatter.range_us)
    axes.fill_between(
        ends,
        ends * scatter.band[0],
        ends * scatter.band[1],
        color="gray",
        alpha=0.25,
        label=f"± {scatter.p90_error:.1%} (p90 of error)",
    )
    axes.plot(ends, ends, color="gray", linewidth=0.8)
    for calls in scatter.calls:
        axes.errorbar(
            calls.measured_us,
            calls.predicted_us,
            xerr=[calls.measured_us - calls.low_us, calls.high_us - calls.measured_us],
            linestyle="none",
            marker="o",
            markersize=2.5,
            elinewidth=0.6,
            color=USE_COLOURS[calls.use],
            label=USES[calls.use],
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,g}")
    axes.set_xlabel("measured µs (lower quartile; bars: p10 to p90)")
    axes.set_ylabel("predicted µs")
    axes.set_title(scatter.kernel, fontsize=8, loc="left")
    axes.legend(fontsize=SMALL)
