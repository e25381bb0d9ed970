"""Fields of a placement on sampling error that cannot both be true."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placer.placement import PlacementDocument

_ROUNDING = 1e-6
"""Shares of a mix sum to 1 within it."""


def sampling_contradictions(document: "PlacementDocument") -> Iterator[str]:
    """As `placer.contradiction.contradictions`, on gains, mix and worst domain."""
    held, mix, robust = document.heldout, document.mix, document.robust
    if strange := set(held.gains or ()) - set(document.baselines):
        yield f"heldout.gains.{min(strange):.60}: is not one of baselines"
    # Without a trace there was nothing to choose from.
    if held.coverage is not None and held.chosen not in {"plan", *document.baselines}:
        yield f"heldout.chosen: is {held.chosen:.60}, which is not one of baselines"
    if mix is not None and (min(mix.values(), default=0.0) <= 0 or abs(sum(mix.values()) - 1.0) > _ROUNDING):
        yield f"mix: sums to {sum(mix.values()):g}, not shares above 0 that sum to 1"
    if mix is not None and robust is not None and (strange := set(robust.domains) - set(mix)):
        yield f"robust.domains.{min(strange):.60}: is not one of mix"
