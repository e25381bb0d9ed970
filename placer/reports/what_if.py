"""What other settings, GPUs and memory would do to the plan, in words."""

from dataclasses import dataclass

from placer.answer.what_if import HEADERS, what_if_notes, what_if_origins, what_if_rows
from placer.placement import PlacementDocument
from placer.reports.absent import Absent


@dataclass(frozen=True)
class WhatIfTable:
    """A row of cells for the plan and for every change that fits.

    ``notes`` say which do not fit, and where figures come from.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def what_if_table(document: PlacementDocument) -> WhatIfTable | Absent:
    """The changes that ``placer solve --what-if`` adds to a placement."""
    if not document.what_if:
        return Absent(
            "the plan was solved without other settings", "solve again with 'placer solve --what-if'"
        )
    notes = (*what_if_notes(document.what_if), *what_if_origins(document.what_if))
    return WhatIfTable(HEADERS, what_if_rows(document), notes)
