"""A problem: why a backend cannot run here, and what to do about it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """Why a backend cannot run here: one sentence on what stands in the way, one on what to do about it."""

    what: str
    cure: str

    def __str__(self) -> str:
        return self.what
