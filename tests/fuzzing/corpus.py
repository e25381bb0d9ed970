"""The bytes that a campaign gives to a reader: mutations of its seeds, the same ones for the same seed number."""

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from fuzzing.reader import Reader

IN_MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
"""Where scratch files cost no disk, or None for the system's own place."""


def seeds(reader: Reader) -> Sequence[bytes]:
    """The sound files that a reader's mutations start from."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        return reader.seeds(Path(folder))


def nth_input(reader: Reader, seeds: Sequence[bytes], seed: int, number: int) -> bytes:
    """Input ``number`` of the campaign with ``seed``: the seeds themselves, then mutations of them."""
    if number < len(seeds):
        return seeds[number]
    random = Random(f"{seed} {reader.name} {number}")
    return reader.mutated(random.choice(seeds), seeds, random)
