"""`placer.explain`: why experts are hot or cold."""

from placer import explanation
from placer.api.checked import checked
from placer.api.opened import Source, opened
from placer.placement import PlacementDocument, read_placement


@checked
def explain(
    placement: PlacementDocument | Source, *, layer: int, expert: int | None = None
) -> explanation.Explanation:
    """Why the experts of ``layer`` (its index in the checkpoint), or one of them, are hot or cold.

    Raises
    ------
    BadInputError
        When the placement has no such MoE layer or expert, or was made without a trace.
    """
    return explanation.explain(opened(placement, read_placement), layer, expert)
