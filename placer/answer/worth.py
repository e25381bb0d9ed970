"""What more room on the GPUs is worth, in a sentence: the solver's multiplier of the budget."""

from placer.hot_bounds import MAX_FLAG
from placer.placement import PlacementDocument
from placer.units import GIB, duration, rounded


def room_worth(
    price_us_per_gib: float, expert_bytes: int, objective_us: float | None, per_token: str
) -> tuple[str, float]:
    """What room saves to first order, and how many GiB of it are meant.

    A GiB, or one expert's place where a GiB would save more than the whole objective: a first-order figure says
    nothing of so large a step.
    """
    if objective_us is None or price_us_per_gib <= objective_us:
        return f"a GiB more per GPU saves {duration(price_us_per_gib)} {per_token}", 1.0
    room_gib = expert_bytes / GIB
    saved = duration(price_us_per_gib * room_gib)
    return f"room for one more expert per GPU saves {saved} {per_token}", room_gib


def worth_sentence(document: PlacementDocument) -> str | None:
    """The multiplier of ``document``'s plan, or what limits it where memory does not; None where none is stated."""
    known, solver = document.sensitivity, document.solver
    if known is None or known.price_us_per_gib is None:
        return None
    if not known.price_us_per_gib:
        return f"more memory would not help this plan: {_limit(document)}"
    said, room_gib = room_worth(
        known.price_us_per_gib, known.expert_bytes_per_gpu, solver.objective_us, solver.per_token
    )
    gained = known.tokens_per_s_per_gib
    rate = "" if gained is None else f" (about {rounded(room_gib * gained, 3)} tokens/s)"
    return f"{said}{rate}, to first order: the solver's multiplier"


def _limit(document: PlacementDocument) -> str:
    """What keeps a plan from more hot experts where a free place is left."""
    if document.hot_total == document.total_experts:
        return "every expert is hot"
    free = [
        len(document.hot.get(str(layer), ())) for layer in document.model.layers if layer not in document.pins
    ]
    if not free:
        return "memory is not what limits it, --pin is"
    if document.most_hot is not None and document.most_hot < document.model.experts:
        if min(free) == document.most_hot:
            return f"memory is not what limits it, {MAX_FLAG} {document.most_hot} is"
        return f"memory is not what limits it ({MAX_FLAG} {document.most_hot} may be)"
    return "a further hot expert would save no time"
