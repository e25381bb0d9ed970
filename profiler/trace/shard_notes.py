"""Notes of thousands of shards as the few that a reader wants."""

import re
from collections.abc import Iterable

_FIGURES = re.compile(r"\d+")


class ShardNotes:
    """Collects notes; those that differ in figures only are told once, with how many shards say so."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._times: dict[str, int] = {}
        self._shards = 0

    def add(self, notes: Iterable[str]) -> None:
        """Add the notes of one shard."""
        self._shards += 1
        for note in notes:
            kind = _FIGURES.sub("#", note)
            self._first.setdefault(kind, note)
            self._times[kind] = self._times.get(kind, 0) + 1

    def notes(self) -> tuple[str, ...]:
        """One note per kind, in order of appearance."""
        if self._shards < 2:
            return tuple(self._first.values())
        return tuple(
            f"{note} (the like in {self._times[kind]} of {self._shards} shards)"
            for kind, note in self._first.items()
        )
