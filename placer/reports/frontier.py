"""What KV tokens cost in tokens per second: the best plan for every number of running requests."""

from dataclasses import dataclass

from placer.open_loop import ttft_without_value
from placer.placement import PlacementDocument
from placer.placement_sections import FrontierSection
from placer.reports.absent import Absent


@dataclass(frozen=True)
class Frontier:
    """The points by KV tokens, ascending; exactly the plan's own is ``chosen``.

    ``without_ttft`` stands for a TTFT that has no value.
    """

    points: tuple[FrontierSection, ...]
    without_ttft: str = "unknown"

    @property
    def chosen(self) -> tuple[FrontierSection, ...]:
        """The plan's own point (none where another tool wrote the section without one)."""
        return tuple(point for point in self.points if point.chosen)


def frontier(document: PlacementDocument) -> Frontier | Absent:
    """The frontier that ``placer solve --frontier`` adds to a placement."""
    if not document.frontier:
        return Absent(
            "the placement holds only the plan that was chosen", "solve again with 'placer solve --frontier'"
        )
    points = sorted(document.frontier, key=lambda point: (point.kv_tokens, point.kv_dtype))
    return Frontier(tuple(points), ttft_without_value(document))
