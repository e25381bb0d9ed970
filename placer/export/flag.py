"""A flag of a serving runtime that a placement decides."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Flag:
    """One server flag (``name`` without dashes), its value and what it does for the plan."""

    name: str
    value: str | int | float | bool | tuple[int, ...]
    why: str
