"""Files from one or many servers imported into one trace file, shard by shard."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from placer.errors import BadInputError, MissingComponentError, PlacerError
from placer.known_name import unknown_value
from placer.output import checked_output, write_whole
from placer.profiler.trace.count_sum import CountSum
from placer.profiler.trace.dask_cluster import cluster_map
from placer.profiler.trace.domains import COUNTS_LOSE_DOMAINS
from placer.profiler.trace.file import write_trace
from placer.profiler.trace.importing import import_known
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.shard import Shards, list_shards
from placer.profiler.trace.shard_notes import ShardNotes
from placer.profiler.trace.shard_reading import Reading, ShardCounts, ShardTokens, read_shard, reduced
from placer.profiler.trace.subjects import domain_names
from placer.profiler.trace.token_join import TokenJoin
from placer.profiler.trace.trace import CountTrace, Phase, TokenTrace, TraceHeader
from placer.units import counted

KEEP = ("auto", "tokens", "counts")
BROKEN = ("stop", "skip")
_NAMED = 3
"""Names that a note lists."""


@dataclass(frozen=True)
class ImportRequest:
    """How files become one trace.

    Attributes
    ----------
    model
        What the trace must belong to.
    format
        A key of `FORMATS`, or "auto".
    phase
        Keep the tokens of one phase only.
    keep
        "tokens", "counts", or "auto": what the first shard holds.
    windows
        Windows of a count trace that several shards, or tokens, are reduced to.
    broken
        "stop" at a shard that cannot be used, or "skip" and name it.
    dask
        Address of a Dask scheduler whose workers read the shards, or None.
    """

    model: KnownModel = field(default_factory=KnownModel)
    format: str = "auto"
    phase: Phase | None = None
    keep: str = "auto"
    windows: int = 64
    broken: str = "stop"
    dask: str | None = None


@dataclass(frozen=True)
class Imported:
    """What was written.

    Attributes
    ----------
    header
        Of the trace.
    kind
        "tokens" or "counts".
    tokens
        In all.
    requests
        Requests of a token trace, windows of a count trace.
    shards
        Files that were used.
    skipped
        Why each file that was skipped could not be used.
    """

    header: TraceHeader
    kind: str
    tokens: int
    requests: int
    shards: int
    skipped: tuple[str, ...]


def import_files(
    sources: Sequence[Path],
    output: Path,
    request: ImportRequest,
    progress: Callable[[str, float], None] = lambda _text, _share: None,
) -> Imported:
    """Import every file of ``sources`` (files and folders) and write one trace to ``output``, whole or not at all.

    One file is imported as it is. Several are shards: all must be of one model (where it is not given, the
    first shard's), a shard with the content of an earlier one counts once, requests stay apart. Memory is that
    of the largest shard and of the result's windows, whatever the number of shards; the result does not depend
    on where they were read.

    Raises
    ------
    BadInputError
        When a shard cannot be used and ``request.broken`` is "stop", or none can.
    MissingComponentError
        When a format, or the cluster, needs a package that is not installed.
    """
    _check(request)
    shards = list_shards(sources)
    return _Fleet(shards, request, progress).write(checked_output(output, shards.paths))


def _check(request: ImportRequest) -> None:
    for flag, value, known in (("--keep", request.keep, KEEP), ("--broken", request.broken, BROKEN)):
        if value not in known:
            raise unknown_value(flag, value, known)
    if request.windows < 1:
        raise BadInputError(f"--windows {request.windows}", "keep one window at least")


class _Fleet:
    """One import of several shards."""

    def __init__(
        self, shards: Shards, request: ImportRequest, progress: Callable[[str, float], None]
    ) -> None:
        self._shards = shards
        self._request = request
        self._progress = progress
        self._notes = ShardNotes()
        self._seen: dict[bytes, str] = {}
        self._repeated: list[str] = []
        self._skipped: list[str] = []
        self._used = 0
        self._domains: set[str] = set()

    def write(self, output: Path) -> Imported:
        first, start = self._first()
        if len(self._shards.paths) == 1 and (self._request.keep != "counts" or isinstance(first, CountTrace)):
            return self._write_whole(first, output)
        slots = -(-self._request.windows // len(self._shards.paths))
        tokens = self._request.keep != "counts" and isinstance(first, TokenTrace)
        model = replace(
            self._request.model,
            name=first.header.model,
            layers=first.header.layers,
            experts=first.header.experts,
            top_k=first.header.top_k,
        )
        reading = Reading(model, self._request.format, self._request.phase, 0 if tokens else slots)
        opening = reduced(first, str(self._shards.paths[start]), reading)
        source = first.header.source
        del first
        with ExitStack() as stack:
            folder = None
            if tokens:
                folder = Path(stack.enter_context(_workspace(output)))
            join = None if folder is None else TokenJoin(folder)
            if join is not None:
                stack.callback(join.close)
            total = CountSum(0 if tokens else self._request.windows, slots, _header(opening))
            for number, shard in self._read(start, opening, reading):
                if isinstance(shard, ShardTokens):
                    assert join is not None
                    join.add(shard.trace, str(self._shards.paths[number]))
                else:
                    total.add(number, shard)
            header = replace(
                _header(opening),
                source=f"{self._used} shards, the first: {source}",
                domains=(),
                notes=(*self._notes.notes(), *self._shards.notes, *self._left_out()),
            )
            if join is not None:
                joined = join.header(header)
                write_whole(output, lambda temporary: join.write(temporary, joined))
                return self._imported(joined, "tokens", join.tokens, join.requests)
            header = self._with_domains(header)
            trace = total.trace(header)
            write_trace(trace, output)
            return self._imported(header, "counts", trace.tokens, len(trace.counts))

    def _with_domains(self, header: TraceHeader) -> TraceHeader:
        """The header of counts, which name the domains of all shards but not whose a window is."""
        grouped, notes = domain_names(sorted(self._domains))
        names = tuple(sorted(set(grouped)))
        if len(names) > 1 and not any(note.startswith(COUNTS_LOSE_DOMAINS) for note in header.notes):
            # Each shard was of one domain.
            notes = (*notes, COUNTS_LOSE_DOMAINS)
        return replace(header, domains=names, notes=(*header.notes, *notes))

    def _write_whole(self, trace: TokenTrace | CountTrace, output: Path) -> Imported:
        """The only shard, as it is."""
        self._used = 1
        trace = replace(trace, header=replace(trace.header, notes=(*trace.header.notes, *self._shards.notes)))
        write_trace(trace, output)
        if isinstance(trace, TokenTrace):
            return self._imported(trace.header, "tokens", trace.tokens, np.unique(trace.request).size)
        return self._imported(trace.header, "counts", trace.tokens, len(trace.counts))

    def _imported(self, header: TraceHeader, kind: str, tokens: int, requests: int) -> Imported:
        return Imported(header, kind, tokens, requests, self._used, tuple(self._skipped))

    def _first(self) -> tuple[TokenTrace | CountTrace, int]:
        """The first usable shard and its number: what the others must fit."""
        for number, path in enumerate(self._shards.paths):
            try:
                trace = import_known(
                    path, self._request.model, format=self._request.format, phase=self._request.phase
                )
                if self._request.keep == "tokens" and isinstance(trace, CountTrace):
                    raise BadInputError(
                        f"{path}: it holds counts, not tokens", "take its counts, with --keep counts"
                    )
            except PlacerError as error:
                self._refuse(error, path)
            else:
                return trace, number
        raise BadInputError(
            f"none of {len(self._shards.paths)} shards can be used; the first: {self._skipped[0]}",
            "import one of them alone to see what is wrong",
        )

    def _read(
        self, start: int, opening: ShardCounts | ShardTokens, reading: Reading
    ) -> Iterator[tuple[int, ShardCounts | ShardTokens]]:
        """Every usable shard that is not a repetition, with its number, in order."""
        paths = self._shards.paths
        whole = max(1, sum(self._shards.sizes_bytes))
        done = sum(self._shards.sizes_bytes[: start + 1])
        yield from self._counted(start, opening)
        for number, result in enumerate(self._results(start + 1, reading), start=start + 1):
            self._progress(f"shard {number + 1} of {len(paths)}", done / whole)
            done += self._shards.sizes_bytes[number]
            if isinstance(result, PlacerError):
                self._refuse(result, paths[number])
            else:
                yield from self._counted(number, result)

    def _results(self, start: int, reading: Reading) -> Iterator[ShardCounts | ShardTokens | PlacerError]:
        paths = self._shards.paths[start:]
        if self._request.dask is not None:
            calls = ((str(path.absolute()), reading) for path in paths)
            yield from cluster_map(self._request.dask, read_shard, calls)
            return
        for path in paths:
            try:
                yield read_shard(str(path), reading)
            except PlacerError as error:
                yield error

    def _counted(
        self, number: int, shard: ShardCounts | ShardTokens
    ) -> Iterator[tuple[int, ShardCounts | ShardTokens]]:
        name = _shown(self._shards.paths[number])
        if shard.digest in self._seen:
            self._repeated.append(f"{name} repeats {self._seen[shard.digest]}")
            return
        self._seen[shard.digest] = name
        self._used += 1
        self._notes.add(_header(shard).notes)
        self._domains.update(_header(shard).domains)
        yield number, shard

    def _refuse(self, error: PlacerError, path: Path) -> None:
        """Stop, or take down why the shard is skipped: the same words wherever it was read."""
        if isinstance(error, MissingComponentError):
            raise error
        if self._request.broken == "stop":
            several = len(self._shards.paths) > 1
            raise type(error)(
                error.what, f"{error.hint}, or leave it out with --broken skip" if several else error.hint
            )
        what = error.what.replace(str(path.absolute()), _shown(path)).replace(str(path), _shown(path))
        self._skipped.append(what)

    def _left_out(self) -> tuple[str, ...]:
        notes = []
        if self._repeated:
            more = ", …" if len(self._repeated) > _NAMED else ""
            notes.append(
                f"counted once: {counted(len(self._repeated), 'shard')} with the same tokens as another (ranks of a "
                f"tensor-parallel server, or copies): {', '.join(self._repeated[:_NAMED])}{more}"
            )
        if self._skipped:
            more = "; …" if len(self._skipped) > _NAMED else ""
            notes.append(
                f"skipped {counted(len(self._skipped), 'shard')} that could not be used: "
                f"{'; '.join(self._skipped[:_NAMED])}{more}"
            )
        return tuple(notes)


def _shown(path: Path) -> str:
    """A shard's name in notes: servers and days are often told apart by folder only."""
    return f"{path.parent.name}/{path.name}" if path.parent.name else path.name


def _header(shard: ShardCounts | ShardTokens) -> TraceHeader:
    return shard.header if isinstance(shard, ShardCounts) else shard.trace.header


def _workspace(output: Path) -> "tempfile.TemporaryDirectory[str]":
    try:
        return tempfile.TemporaryDirectory(prefix=".placer-", dir=output.parent)
    except OSError as error:
        raise BadInputError(
            f"cannot write beside {output}: {error.strerror or error}", "choose another path with -o"
        ) from None
