"""A count trace from a table with a row per layer and expert, as CSV and Parquet files hold it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.trace import PADDING, CountTrace, Phase, TraceHeader

COLUMNS = ("layer", "expert", "count", "domain", "request", "phase")
"""Columns that are read, by name in any case and order; the first three are needed."""

_NEEDED = COLUMNS[:3]
_KEY = ["window", "layer", "expert"]
_PHASES = {"prefill": Phase.PREFILL, "0": Phase.PREFILL, "decode": Phase.DECODE, "1": Phase.DECODE}
_MOST_COUNT = 2**40
"""Largest count of a row; a million of them still add up inside 64 bits."""
_MOST_PENDING_ROWS = 2_000_000
_MOST_ENTRIES = 2**24
"""Largest [W, L, E] that is built, 128 MiB: thousands of windows, more than any interval needs."""


def count_table_trace(
    chunks: Iterable[pd.DataFrame], model: KnownModel, phase: Phase | None, where: str
) -> CountTrace:
    """Counts of a table that comes in ``chunks`` with columns of `COLUMNS`, in lower case.

    ``layer`` is an index in the checkpoint. Rows of the same domain and request are a window, in the order
    these first appear; without either column the table is one window. ``phase`` keeps the rows of one phase.
    Rows for the same expert of a window are added up.

    Raises
    ------
    BadInputError
        When a column is missing or holds anything but what it should, or the table does not fit the model.
    """
    read = _summed(chunks, phase, where)
    summed = read.counts
    if model.top_k is None:
        raise BadInputError(f"{where}: a table of counts does not say top-k", "give the model (--model DIR)")
    layers = _layers(summed["layer"].to_numpy(), model, where)
    notes = []
    experts = model.experts
    if experts is None:
        experts = read.highest_expert + 1
        notes.append(f"the number of experts was taken from the highest id, {experts - 1}")
    elif read.highest_expert >= experts:
        raise BadInputError(
            f"{where}: expert {read.highest_expert}, the model has {experts} experts per layer",
            "give the model that this table is of",
        )
    most = _MOST_ENTRIES // (len(layers) * experts)
    if not most:
        raise BadInputError(
            f"{where}: {len(layers)} layers of {experts} experts", "ids count from 0 without gaps"
        )
    found = int(summed["window"].max()) + 1
    if found > most:
        notes.append(f"{found} requests were dealt to {most} windows, so that the trace stays small")
    counts = np.zeros((min(found, most), len(layers), experts), dtype=np.int64)
    row = np.searchsorted(layers, summed["layer"].to_numpy())
    window = summed["window"].to_numpy() % most
    np.add.at(counts, (window, row, summed["expert"].to_numpy()), summed["count"].to_numpy())
    if read.rows > len(summed):
        notes.append(f"{read.rows - len(summed)} rows name an expert again and were added to the first")
    if len(read.phases) > 1:
        notes.append("prefill and decode selections were added up: --phase decode keeps one of them")
    elif read.phases:
        notes.append(f"all selections are of phase {next(iter(read.phases)).name.lower()}")
    if read.domains > 1:
        notes.append("counts keep no domain names: rows of a domain are windows of their own")
    return CountTrace(
        header=TraceHeader(
            model=model.name or Path(where).stem,
            layers=tuple(int(layer) for layer in layers),
            experts=experts,
            top_k=model.top_k,
            source=f"{Path(where).name}: table of counts",
            notes=("tokens were derived from counts and top-k", *notes),
        ),
        counts=counts,
        window_tokens=-(-counts.sum(axis=2).max(axis=1) // model.top_k),
    )


class _Windows:
    """Numbers the pairs of domain and request in the order they appear, over all chunks."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}

    @property
    def domains(self) -> int:
        """Different domains so far."""
        return len({domain for domain, _ in self._numbers})

    def of(self, chunk: pd.DataFrame) -> NDArray[np.int64]:
        """Window of each row.

        Texts are told apart by their codes, so that one long text in every row is held once.
        """
        rows = len(chunk)
        domain, domains = _codes(chunk, "domain", rows)
        request, requests = _codes(chunk, "request", rows)
        pairs, first, inverse = np.unique(
            domain * max(1, len(requests)) + request, return_index=True, return_inverse=True
        )
        numbers = np.empty(len(pairs), dtype=np.int64)
        for at in np.argsort(first):
            row = first[at]
            pair = (domains[domain[row]], requests[request[row]])
            numbers[at] = self._numbers.setdefault(pair, len(self._numbers))
        return numbers[inverse]


def _codes(chunk: pd.DataFrame, name: str, rows: int) -> tuple[NDArray[np.int64], list[str]]:
    if name not in chunk:
        return np.zeros(rows, dtype=np.int64), [""]
    codes, texts = pd.factorize(chunk[name], use_na_sentinel=False)
    return codes.astype(np.int64), [str(text) for text in texts]


def _layers(found: NDArray[np.int64], model: KnownModel, where: str) -> NDArray[np.int64]:
    """Rising checkpoint indices of the layers."""
    seen = np.unique(found)
    if model.layers is None:
        return seen
    wanted = np.asarray(model.layers, dtype=np.int64)
    for layer in np.setdiff1d(seen, wanted):
        raise BadInputError(
            f"{where}: layer {layer} has no experts in the model",
            "count layers as the checkpoint does (dense layers too), and give the model this table is of",
        )
    for layer in np.setdiff1d(wanted, seen):
        raise BadInputError(
            f"{where}: nothing was routed in MoE layer {layer} of the model",
            "give the model that this table is of, or record again",
        )
    return wanted


@dataclass(frozen=True)
class _Read:
    """A whole table.

    Attributes
    ----------
    counts
        Columns of `_KEY` and ``count``, one row per key in order of appearance.
    rows
        How many rows had counts.
    highest_expert
        Of all rows, those without counts too.
    phases
        Of the rows with counts.
    domains
        How many different ones there are.
    """

    counts: pd.DataFrame
    rows: int
    highest_expert: int
    phases: set[Phase]
    domains: int


def _summed(chunks: Iterable[pd.DataFrame], phase: Phase | None, where: str) -> _Read:
    parts: list[pd.DataFrame] = []
    phases: set[Phase] = set()
    rows = pending = start = 0
    highest = -1
    windows = _Windows()
    for chunk in chunks:
        checked, met = _checked(chunk, phase, windows, f"{where}, row {start + 1} or later", where)
        start += len(chunk)
        highest = max(highest, int(checked["expert"].max())) if len(checked) else highest
        kept = checked[checked.pop("kept") & (checked["count"] > 0)]
        phases |= met
        rows += len(kept)
        parts.append(_grouped(kept, where))
        pending += len(parts[-1])
        if pending > _MOST_PENDING_ROWS:
            parts = [_grouped(pd.concat(parts, ignore_index=True), where)]
            pending = len(parts[0])
    if not rows:
        what = "" if phase is None else f" of phase {phase.name.lower()}"
        raise BadInputError(f"{where}: no row{what} has a count", "record while the server answers requests")
    return _Read(_grouped(pd.concat(parts, ignore_index=True), where), rows, highest, phases, windows.domains)


def _grouped(table: pd.DataFrame, where: str) -> pd.DataFrame:
    grouped = table.groupby(_KEY, sort=False, observed=True)[["count"]].sum().reset_index()
    if len(grouped) and grouped["count"].max() > _MOST_COUNT:
        raise BadInputError(f"{where}: a count adds up to more than {_MOST_COUNT}", "check the table")
    return grouped


def _checked(
    chunk: pd.DataFrame, phase: Phase | None, windows: _Windows, at: str, where: str
) -> tuple[pd.DataFrame, set[Phase]]:
    """The chunk's columns of `_KEY`, ``count`` and ``kept`` (of the wanted phase), and phases of counts."""
    missing = [name for name in _NEEDED if name not in chunk]
    if missing:
        raise BadInputError(
            f"{where}: no column {', '.join(missing)}", f"name its columns {', '.join(COLUMNS)}"
        )
    chunk = chunk.reset_index(drop=True)
    table = pd.DataFrame({name: _whole_numbers(chunk[name], name, at) for name in _NEEDED})
    for name, most in (("layer", 2**31), ("expert", PADDING), ("count", _MOST_COUNT + 1)):
        column = table[name]
        if len(column) and not 0 <= column.min() <= column.max() < most:
            strange = column.min() if column.min() < 0 else column.max()
            raise BadInputError(f"{at}: {name} {strange} is not between 0 and {most - 1}", "check the table")
    try:
        table["window"] = windows.of(chunk)
    except TypeError:
        raise BadInputError(f"{at}: domain and request must be texts or numbers", "check the table") from None
    table["kept"] = True
    phases: set[Phase] = set()
    if "phase" in chunk:
        codes, texts = _codes(chunk, "phase", len(chunk))
        named = [_PHASES.get(text.strip().lower()) for text in texts]
        if None in named:
            strange = texts[named.index(None)]
            raise BadInputError(f"{at}: phase {strange[:40]!r}", "write prefill or decode")
        of_row = np.array(named, dtype=np.int64)[codes]
        if phase is not None:
            table["kept"] = of_row == phase
        phases = {Phase(int(one)) for one in np.unique(of_row[table["kept"] & (table["count"] > 0)])}
    elif phase is not None:
        raise BadInputError(
            f"{where}: it has no column phase, so --phase {phase.name.lower()} cannot be told", "leave it out"
        )
    return table, phases


def _whole_numbers(column: pd.Series, name: str, at: str) -> NDArray[np.int64]:
    try:
        numbers = pd.to_numeric(column).to_numpy()
        if numbers.dtype.kind == "f" and np.array_equal(numbers, np.floor(numbers)):
            # Infinities equal their floor too.
            numbers = numbers.astype(np.int64) if np.abs(numbers).max(initial=0) < 2**53 else numbers
        if numbers.dtype.kind == "i" or (numbers.dtype.kind == "u" and numbers.max(initial=0) < 2**63):
            return np.asarray(numbers, dtype=np.int64)
    except (ValueError, TypeError, OverflowError, AttributeError):
        pass
    raise BadInputError(f"{at}: {name} is not a whole number everywhere", "check the table for gaps and text")
