"""What is fuzzed: one reader, the files it starts from, and what commands do with what it read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from fuzzing.byte_mutation import MOST_BYTES, Mutation, spliced
from placer.errors import PlacerError


def _nothing(_found: Any) -> None:
    pass


@dataclass(frozen=True)
class Reader:
    """A reader of files that users give.

    Attributes
    ----------
    name
        As the record of campaigns calls it.
    seeds
        Sound files that mutations start from, made in a scratch folder by the writers of this project where it
        has them.
    mutate
        One change that knows the format.
    read
        Reads the file at a path, as commands do.
    use
        What commands then do with what was read; it takes longer, so not every sound input goes through it.
    file
        Name of the file that is written for ``read``.
    prepare
        Writes what lies beside that file.
    refusals
        Errors that say in one line what is wrong; any other one is a fault.
    """

    name: str
    seeds: Callable[[Path], Sequence[bytes]]
    mutate: Mutation
    read: Callable[[Path], Any]
    use: Callable[[Any], None] = _nothing
    file: str = "input"
    prepare: Callable[[Path], None] = _nothing
    refusals: tuple[type[Exception], ...] = (PlacerError,)

    def mutated(self, data: bytes, seeds: Sequence[bytes], random: Random) -> bytes:
        """``data`` after one to four changes; equal states of ``random`` give equal bytes."""
        for _ in range(random.choice((1, 1, 1, 2, 2, 4))):
            data = spliced(data, seeds, random) if random.random() < 0.02 else self.mutate(data, random)
        return data[:MOST_BYTES]
