"""The charts of a report as plotly figures; colours of text and lines are the page's, so that it can change them."""

from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import escape

from placer.errors import MissingComponentError
from placer.extra import install_command
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
from placer.units import duration, gib, percent

if TYPE_CHECKING:
    import plotly.graph_objects as go

GRID = "rgba(128,128,128,0.25)"


def charts(report: Report) -> "dict[str, go.Figure]":
    """Figures by the id of their place in the page; parts that are absent have none.

    Raises
    ------
    MissingComponentError
        When plotly is not installed.
    """
    drawn = {"heat-map": _heat_map(report.heat_map)}
    drawn |= {f"ledger-{at}": _ledger(ledger) for at, ledger in enumerate(report.ledgers) if ledger.lines}
    if isinstance(report.frontier, Frontier):
        drawn["frontier"] = _frontier(report.frontier)
    if not isinstance(report.cost, Absent):
        drawn |= {f"cost-{scatter.side}": _cost(scatter) for scatter in report.cost}
    if isinstance(report.layers, LayerTimes):
        drawn["layers"] = _layers(report.layers)
    return drawn


def _figure(height: int, **layout: Any) -> "go.Figure":
    try:
        import plotly.graph_objects as go  # noqa: PLC0415  # half a second, and optional
    except ImportError:
        raise MissingComponentError(
            "report.html is drawn with plotly, which is not installed", install_command("report")
        ) from None
    axis = {
        "gridcolor": GRID,
        "zerolinecolor": GRID,
        "linecolor": GRID,
        "automargin": True,
        "title": {"standoff": 8},
    }
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "traceorder": "normal"},
        font={"size": 13, "family": "system-ui, sans-serif"},
        **layout,
    )
    figure.update_xaxes(axis)
    figure.update_yaxes(axis)
    return figure


def _heat_map(heat: HeatMap) -> "go.Figure":
    figure = _figure(max(260, min(900, 120 + 11 * len(heat.layers))))
    valued = heat.value_us is not None
    for hot, name, scale in ((True, "hot", HOT), (False, "cold", COLD)):
        worth = f": being hot saves %{{z:.4g}} µs {heat.per_token}" if valued else ""
        figure.add_heatmap(
            z=heat.side(hot),
            y=[str(layer) for layer in heat.layers],
            colorscale=scale,
            zmin=0.0,
            zmax=heat.strongest_us,
            name=name,
            hoverongaps=False,
            hovertemplate=f"layer %{{y}}, expert %{{x}}<br>{name}{worth}<extra></extra>",
            showscale=valued,
            colorbar={
                "title": {"text": f"{name}, µs", "side": "top"},
                "orientation": "h",
                "thickness": 10,
                "len": 0.46,
                "x": 0.0 if hot else 1.0,
                "xanchor": "left" if hot else "right",
                "y": 1.0,
                "yanchor": "bottom",
                "nticks": 4,
            },
        )
    # Above a reversed axis plotly measures the distance of the title from above the labels.
    figure.update_xaxes(title={"text": "expert", "standoff": 32}, showgrid=False)
    figure.update_yaxes(title_text="layer", type="category", autorange="reversed", showgrid=False)
    return figure


def _ledger(ledger: Ledger) -> "go.Figure":
    figure = _figure(110, barmode="stack", showlegend=False)
    for (name, size), colour in zip(ledger.lines, line_colours(ledger), strict=True):
        figure.add_bar(
            x=[size / 2**30],
            y=[""],
            orientation="h",
            name=str(escape(name)),
            marker_color=colour,
            hovertemplate=f"%{{fullData.name}}<br>{gib(size)}, {percent(ledger.share(size))}<extra></extra>",
        )
    figure.update_xaxes(title_text="GiB")
    return figure


def _frontier(frontier: Frontier) -> "go.Figure":
    figure = _figure(380)
    for dtype in sorted({point.kv_dtype for point in frontier.points}):
        points = [point for point in frontier.points if point.kv_dtype == dtype]
        figure.add_scatter(
            x=[point.kv_tokens for point in points],
            y=[point.output_tokens_per_s for point in points],
            mode="lines+markers",
            marker_size=8,
            name=f"best plan, KV in {dtype}",
            customdata=[
                [
                    point.max_running_requests,
                    point.hot_experts,
                    _p95(point.tpot_ms_p95),
                    _p95(point.ttft_ms_p95, frontier.without_ttft),
                ]
                for point in points
            ],
            hovertemplate="%{x:,} KV tokens, %{customdata[0]:,} running requests, %{customdata[1]:,} hot experts"
            "<br>%{y:,.1f} tokens/s; p95 of TPOT %{customdata[2]}, of TTFT %{customdata[3]}<extra></extra>",
        )
    figure.add_scatter(
        x=[point.kv_tokens for point in frontier.chosen],
        y=[point.output_tokens_per_s for point in frontier.chosen],
        mode="markers",
        marker={"size": 16, "symbol": "star", "color": HOT[-1][1]},
        name="chosen",
        hoverinfo="skip",
    )
    figure.update_xaxes(title_text="KV tokens")
    figure.update_yaxes(title_text="output tokens/s", rangemode="tozero")
    return figure


def _p95(value: float | None, without: str = "unknown") -> str:
    return without if value is None else duration(1e3 * value)


def _cost(scatter: CostScatter) -> "go.Figure":
    figure = _figure(420)
    ends = np.array(scatter.range_us)
    figure.add_scatter(
        x=[*ends, *ends[::-1]],
        y=[*(ends * scatter.band[0]), *(ends[::-1] * scatter.band[1])],
        fill="toself",
        mode="none",
        fillcolor="rgba(128,128,128,0.25)",
        hoverinfo="skip",
        name=f"± {scatter.p90_error:.1%} (p90 of error)",
    )
    figure.add_scatter(
        x=ends, y=ends, mode="lines", line={"color": "gray", "width": 1}, hoverinfo="skip", name="exact"
    )
    for calls in scatter.calls:
        figure.add_scatter(
            x=calls.measured_us,
            y=calls.predicted_us,
            error_x={
                "type": "data",
                "symmetric": False,
                "array": calls.high_us - calls.measured_us,
                "arrayminus": calls.measured_us - calls.low_us,
                "thickness": 1,
                "width": 0,
            },
            mode="markers",
            marker={"size": 6, "color": USE_COLOURS[calls.use]},
            name=USES[calls.use],
            text=[str(escape(text)) for text in calls.text],
            hovertemplate="%{text}<br>measured %{x:,.1f} µs, predicted %{y:,.1f} µs<extra></extra>",
        )
    figure.update_xaxes(title_text="measured µs", type="log")
    figure.update_yaxes(title_text="predicted µs", type="log")
    return figure


def _layers(times: LayerTimes) -> "go.Figure":
    figure = _figure(420, barmode="stack")
    layers = [str(layer) for layer in times.layers]
    for name, part in times.parts.items():
        figure.add_bar(
            x=layers,
            y=part,
            name=name,
            marker_color=part_colour(name),
            hovertemplate="layer %{x}, %{fullData.name}<br>%{y:.4g} ms<extra></extra>",
        )
    for name, whole in times.beside.items():
        figure.add_scatter(
            x=layers,
            y=whole,
            mode="lines",
            line={
                "width": 1.5,
                "shape": "hvh",
                "color": placement_colour(name),
                "dash": "dash" if is_dashed(name) else "solid",
            },
            name=str(escape(name)),
            visible=True if name in DRAWN_BESIDE else "legendonly",
            hovertemplate="layer %{x}, %{fullData.name}<br>%{y:.4g} ms<extra></extra>",
        )
    figure.update_xaxes(title_text="layer", type="category")
    figure.update_yaxes(title_text="ms of a decode step", rangemode="tozero")
    return figure
