"""Counts of many shards added up in constant memory."""

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.shard_reading import ShardCounts
from placer.profiler.trace.trace import CountTrace, TraceHeader

_MOST_ENTRIES = 2**27


class CountSum:
    """Windows [W, L, E] that shards are added to: shard i goes to windows i·slots, i·slots + 1, … (modulo W).

    Sums of integers do not depend on the order of the shards, and a shard's windows only on its number.
    """

    def __init__(self, windows: int, slots: int, header: TraceHeader) -> None:
        entries = windows * len(header.layers) * header.experts
        if entries > _MOST_ENTRIES:
            raise BadInputError(
                f"{windows} windows of {len(header.layers)} layers and {header.experts} experts are {entries} counts",
                f"keep fewer windows (--windows): at most {_MOST_ENTRIES} counts",
            )
        self._slots = slots
        self._counts = np.zeros((windows, len(header.layers), header.experts), dtype=np.int64)
        self._tokens = np.zeros(windows, dtype=np.int64)

    def add(self, number: int, shard: ShardCounts) -> None:
        """Add shard ``number``."""
        window = self._windows(number)
        np.add.at(self._counts, window, shard.counts)
        np.add.at(self._tokens, window, shard.tokens)

    def _windows(self, number: int) -> NDArray[np.int64]:
        return (number * self._slots + np.arange(self._slots)) % len(self._counts)

    def trace(self, header: TraceHeader) -> CountTrace:
        """All windows that saw tokens."""
        used = self._tokens > 0
        return CountTrace(header, counts=self._counts[used], window_tokens=self._tokens[used])
