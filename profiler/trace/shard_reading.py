"""One shard read and reduced; what runs for each of thousands of files, here or on a cluster."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.domains import COUNTS_LOSE_DOMAINS
from placer.profiler.trace.importing import import_known
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.trace import PADDING, CountTrace, Phase, TokenTrace, Trace, TraceHeader

_BLOCK_IDS = 4_000_000


@dataclass(frozen=True)
class Reading:
    """How every shard is read.

    Attributes
    ----------
    model, format, phase
        See `import_trace`.
    slots
        Windows that a shard's requests, or its own windows, are dealt to when counts are kept; 0 keeps tokens.
    """

    model: KnownModel
    format: str
    phase: Phase | None
    slots: int


@dataclass(frozen=True)
class ShardCounts:
    """A shard as counts.

    Attributes
    ----------
    header
        Of the shard's trace.
    counts
        int64 [slots, L, E].
    tokens
        int64 [slots].
    digest
        Of the shard's content, the same for the same tokens under another name.
    """

    header: TraceHeader
    counts: NDArray[np.int64]
    tokens: NDArray[np.int64]
    digest: bytes


@dataclass(frozen=True)
class ShardTokens:
    """A shard as tokens."""

    trace: TokenTrace
    digest: bytes


def read_shard(path: str, reading: Reading) -> ShardCounts | ShardTokens:
    """The shard at ``path``.

    Raises
    ------
    BadInputError
        When it cannot be imported, or tokens are to be kept and it holds counts.
    MissingComponentError
        When its format needs a package that is not installed.
    """
    return reduced(
        import_known(Path(path), reading.model, format=reading.format, phase=reading.phase), path, reading
    )


def reduced(trace: Trace, path: str, reading: Reading) -> ShardCounts | ShardTokens:
    """A trace that was read from ``path``, as `Reading` wants it."""
    digest = _digest(trace)
    if not reading.slots:
        if isinstance(trace, CountTrace):
            raise BadInputError(f"{path}: it holds counts, not tokens", "take its counts, with --keep counts")
        return ShardTokens(trace, digest)
    header = trace.header
    if isinstance(trace, TokenTrace):
        counts, tokens = _request_counts(trace, reading.slots)
        notes = header.notes
        if reading.phase is None and len(np.unique(trace.phase)) > 1:
            notes = (*notes, "prefill and decode tokens were counted together: --phase keeps one of them")
        if len(header.domains) > 1:
            notes = (*notes, COUNTS_LOSE_DOMAINS)
        return ShardCounts(replace(header, notes=notes), counts, tokens, digest)
    counts = np.zeros((reading.slots, *trace.counts.shape[1:]), dtype=np.int64)
    tokens = np.zeros(reading.slots, dtype=np.int64)
    slot = np.arange(len(trace.counts)) % reading.slots
    np.add.at(counts, slot, trace.counts)
    np.add.at(tokens, slot, trace.window_tokens)
    return ShardCounts(header, counts, tokens, digest)


def _request_counts(trace: TokenTrace, slots: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Counts int64 [slots, L, E] and tokens int64 [slots], requests dealt to slots in turn."""
    T, L, K = trace.topk_ids.shape
    E = trace.header.experts
    starts = np.diff(trace.request, prepend=trace.request[0]) != 0
    slot = np.cumsum(starts) % slots
    # A place behind the last expert of each layer takes the padding.
    base = np.arange(L, dtype=np.int64)[:, None] * (E + 1)
    counts = np.zeros(slots * L * (E + 1), dtype=np.int64)
    block = max(1, _BLOCK_IDS // (L * K))
    for start in range(0, T, block):
        ids = trace.topk_ids[start : start + block]
        place = (
            np.where(ids == PADDING, E, ids) + base + slot[start : start + block, None, None] * (L * (E + 1))
        )
        used, times = np.unique(place, return_counts=True)
        counts[used] += times
    return counts.reshape(slots, L, E + 1)[:, :, :-1].copy(), np.bincount(slot, minlength=slots).astype(
        np.int64
    )


def _digest(trace: Trace) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    arrays: list[NDArray[Any]]
    if isinstance(trace, CountTrace):
        arrays = [trace.counts, trace.window_tokens]
    else:
        arrays = [trace.topk_ids, trace.request, trace.position, trace.phase]
    for array in arrays:
        found.update(str(array.shape).encode())
        found.update(np.ascontiguousarray(array).data)
    return found.digest()
