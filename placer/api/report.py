"""`placer.report`: one page that shows a placement and all it rests on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placer.api.checked import checked
from placer.api.opened import Source, opened, path_or_none, paths_of
from placer.api.progress import Progress, silent
from placer.api.routing import Routing, routing
from placer.model.spec import ModelSpec, read_model
from placer.output import checked_output, write_text
from placer.profiler.profile import Profile, read_profile
from placer.reports.page import page
from placer.reports.picture import write_pictures
from placer.reports.report import Report, make_report


@dataclass(frozen=True)
class DrawnReport:
    """A report as a page.

    Attributes
    ----------
    report
        Its figures and tables as plain data.
    html
        The page, which needs no network.
    output, pictures
        Where the page and its figures were written; None and none where they were not.
    """

    report: Report
    html: str
    output: Path | None
    pictures: tuple[Path, ...]

    @property
    def size_bytes(self) -> int:
        """Of the page."""
        return len(self.html.encode())

    def document(self) -> dict[str, Any]:
        """What ``report --json`` prints."""
        return {
            "report": None if self.output is None else str(self.output),
            "bytes": self.size_bytes,
            "pictures": [str(path) for path in self.pictures],
            "absent": {
                name: {"why": part.why, "cure": part.cure} for name, part in self.report.absent.items()
            },
        }


@checked
def report(
    placement: Source,
    *,
    profile: Profile | Source | None = None,
    trace: Routing | None = None,
    model: ModelSpec | Source | None = None,
    png: Source | None = None,
    output: Source | None = None,
    progress: Progress = silent,
) -> DrawnReport:
    """Draw the placement in the file ``placement``; to the file ``output``, and its figures to the folder ``png``.

    ``profile`` adds predicted against measured times; ``trace``, with ``model`` and ``profile``, the plan's score on
    it.

    Raises
    ------
    BadInputError
        When the placement is invalid or the parts belong to different models.
    MissingComponentError
        When what the report is drawn with is not installed.
    """
    target, folder = path_or_none(output), path_or_none(png)
    if target is not None:
        checked_output(target, paths_of(placement, profile, trace))
    made = make_report(
        Path(placement),
        profile=None if profile is None else opened(profile, read_profile),
        trace=None if trace is None else routing(trace),
        model=None if model is None else opened(model, read_model),
        progress=progress,
    )
    progress("drawing", 0.9)
    text = page(made)
    pictures = () if folder is None else write_pictures(made, folder)
    progress("writing the page", 1.0)
    if target is not None:
        write_text(target, text)
    return DrawnReport(made, text, target, pictures)
