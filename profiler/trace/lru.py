"""An LRU cache of each layer's experts, replayed over a trace: what it holds when a step needs it.

The rule is that of SGLang's paged experts: a step looks up all of its experts, keeps those that are there, and loads
the missing ones over the least recently used that it does not need; a step that needs more than the cache holds
streams the rest past it. Residents begin as experts 0, 1, 2... Such a cache is a stack algorithm (R. L. Mattson et
al., IBM Systems Journal 9(2), 1970): a cache of s slots holds the first s of one order, so one replay tells every
size.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.replay import played_decode, replay_decode, rows_of
from placer.profiler.trace.trace import CountTrace, Phase, TokenTrace, Trace

MOST_ENTRIES = 120_000_000
"""Steps times layers times experts of a replay: bounds its time to seconds."""
_COUNT_STEPS = 512
"""Steps sampled from counts, which hold no order to replay."""
_BLOCK_ENTRIES = 8_000_000


class LruStack:
    """The experts of every layer, most recently used first; it moves on with each step that it is shown."""

    def __init__(self, layers: int, experts: int) -> None:
        self._order = np.tile(np.arange(experts, dtype=np.int64), (layers, 1))

    def depths(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """Where each expert stands as each step begins: int64 [S, L, E] for rows [S, L, E].

        A cache of s slots holds the experts at depths below s. Used experts (rows above 0) then move to the front,
        in the order in which they stood.
        """
        S, L, E = rows.shape
        depths = np.empty((S, L, E), dtype=np.int64)
        place = np.broadcast_to(np.arange(E), (L, E))
        for step in range(S):
            np.put_along_axis(depths[step], self._order, place, axis=1)
            used = np.take_along_axis(rows[step], self._order, axis=1) > 0
            self._order = np.take_along_axis(self._order, np.argsort(~used, axis=1, kind="stable"), axis=1)
        return depths


@dataclass(frozen=True)
class LruHits:
    """How deep in the stack the experts of S steps stood.

    Attributes
    ----------
    steps, concurrency
        Decode steps that were replayed, and requests in each.
    experts_at, rows_at
        int64 [L, E]: experts that steps needed at each depth, and their selections.
    approximate
        What the replay assumes, or None.
    """

    steps: int
    concurrency: int
    experts_at: NDArray[np.int64]
    rows_at: NDArray[np.int64]
    approximate: str | None = None

    def hit_share(self, slots: int) -> NDArray[np.float64]:
        """Share of the distinct experts that a step needs which ``slots`` per layer hold: float64 [L].

        The rest are loaded, each once a step.
        """
        return np.asarray(_below(self.experts_at, slots) / np.maximum(self.experts_at.sum(axis=1), 1))

    def selection_share(self, slots: int) -> NDArray[np.float64]:
        """Share of selections whose expert is held when the step begins: float64 [L]."""
        return np.asarray(_below(self.rows_at, slots) / np.maximum(self.rows_at.sum(axis=1), 1))

    def loads_per_step(self, slots: int) -> NDArray[np.float64]:
        """Mean experts of each layer that a step loads: float64 [L]."""
        return np.asarray((self.experts_at.sum(axis=1) - _below(self.experts_at, slots)) / self.steps)


def lru_hits(trace: Trace, concurrency: int, seed: int = 0, *, most_entries: int = MOST_ENTRIES) -> LruHits:
    """Consecutive decode steps of ``concurrency`` requests through the cache, for every number of slots.

    Steps are those of `replay_decode` one apart, over one pass of the trace where ``most_entries`` (steps times
    layers times experts) allows. Counts hold no order:
    their steps are drawn independently, which leaves recency nothing to gain.

    Raises
    ------
    BadInputError
        When the trace holds no decode tokens, or ``concurrency`` is below 1.
    """
    header = trace.header
    L, E = len(header.layers), header.experts
    stack = LruStack(L, E)
    experts_at = np.zeros((L, E), dtype=np.int64)
    rows_at = np.zeros((L, E), dtype=np.int64)
    steps, approximate = 0, None
    if isinstance(trace, CountTrace):
        approximate = (
            "counts hold no order of tokens: an LRU cache can only look as good as popularity makes it"
        )
    for rows in consecutive_rows(trace, concurrency, seed, most_entries):
        depths = stack.depths(rows)
        cells = (np.arange(L)[:, None] * E + depths).ravel()
        steps += len(rows)
        experts_at += np.bincount(cells, (rows > 0).ravel(), L * E).astype(np.int64).reshape(L, E)
        rows_at += np.bincount(cells, rows.ravel(), L * E).astype(np.int64).reshape(L, E)
    return LruHits(steps, concurrency, experts_at, rows_at, approximate)


def lru_hit_share(trace: Trace, slots: int, concurrency: int, seed: int = 0) -> NDArray[np.float64]:
    """`LruHits.hit_share` of caches with ``slots`` per layer under ``concurrency`` requests: float64 [L].

    Raises
    ------
    BadInputError
        As `lru_hits`, and when a layer has not so many experts.
    """
    if not 0 <= slots <= trace.header.experts:
        raise BadInputError(
            f"a cache of {slots} slots per layer",
            f"a layer has {trace.header.experts} experts: give 0 to {trace.header.experts}",
        )
    return lru_hits(trace, concurrency, seed).hit_share(slots)


def consecutive_rows(
    trace: Trace, concurrency: int, seed: int, most_entries: int = MOST_ENTRIES
) -> Iterator[NDArray[np.int32]]:
    """Rows [S, L, E] of consecutive decode steps over at most one pass of the trace, in blocks."""
    entries = len(trace.header.layers) * trace.header.experts
    if isinstance(trace, CountTrace):
        steps = max(1, min(_COUNT_STEPS, most_entries // entries))
        yield replay_decode(trace, concurrency, steps, seed, spacing=1).rows
        return
    played = consecutive_tokens(trace, concurrency, seed, max(1, most_entries // entries))
    block = max(1, _BLOCK_ENTRIES // entries)
    for start in range(0, len(played), block):
        yield rows_of(trace, played[start : start + block])


def consecutive_tokens(trace: TokenTrace, concurrency: int, seed: int, most_steps: int) -> NDArray[np.int64]:
    """Tokens of consecutive decode steps, at most one pass of the trace: int64 [S, R] as `played_decode`."""
    if concurrency < 1:
        raise BadInputError(f"concurrency is {concurrency}", "give at least 1")
    decode = int((trace.phase == Phase.DECODE).sum())
    steps = max(1, min(decode // concurrency, most_steps))
    return played_decode(trace, concurrency, steps, np.random.default_rng(seed), spacing=1)


def _below(counts: NDArray[np.int64], slots: int) -> NDArray[np.int64]:
    return np.asarray(counts[:, :slots].sum(axis=1))
