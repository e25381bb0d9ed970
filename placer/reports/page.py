"""The report as one HTML file that needs nothing but itself: no network, no other file."""

import base64
import gzip
from pathlib import Path
from typing import Any

from placer.errors import MissingComponentError
from placer.extra import install_command
from placer.reports.absent import Absent
from placer.reports.chart import charts
from placer.reports.colour import line_colours
from placer.reports.report import Report
from placer.units import duration, gib, percent

TEMPLATE = "page.html.j2"


def page(report: Report) -> str:
    """The report as HTML. The same report gives the same text.

    The plotting library travels compressed, which makes the file less than half as large; the browser unpacks it.

    Raises
    ------
    MissingComponentError
        When jinja2 or plotly is not installed.
    """
    try:
        import jinja2  # noqa: PLC0415  # optional
        from jinja2.utils import htmlsafe_json_dumps  # noqa: PLC0415
    except ImportError:
        raise MissingComponentError(
            "report.html is written with jinja2, which is not installed", install_command("report")
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["absent"] = lambda part: isinstance(part, Absent)
    environment.filters |= {"gib": gib, "percent": percent, "duration": duration}
    drawn = {name: htmlsafe_json_dumps(figure, dumps=_json) for name, figure in charts(report).items()}
    return environment.get_template(TEMPLATE).render(
        report=report, charts=drawn, line_colours=line_colours, library=_library()
    )


def _json(figure: Any, **_options: Any) -> str:
    text: str = figure.to_json()
    return text


def _library() -> str:
    """plotly.js, gzip in base64."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415  # `charts` has said whether it is there

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()
