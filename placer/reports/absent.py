"""A part of a report that its inputs do not hold: why, and how to get it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Absent:
    """``why`` the part is not shown, and the ``cure``: what to give or run so that it is."""

    why: str
    cure: str
