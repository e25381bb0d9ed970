"""A count trace from a table with a row per layer and expert, as CSV and Parquet files hold it."""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.domains import COUNTS_LOSE_DOMAINS
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.subjects import domain_names
from placer.profiler.trace.trace import PADDING, CountTrace, Phase, TraceHeader
from placer.units import counted

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

Place = Callable[[int], str]
"""Names a row of a table, counted from 0, as its reader finds it: "t.csv, line 2"."""


def count_table_trace(
    chunks: Iterable[pd.DataFrame], model: KnownModel, phase: Phase | None, where: str, place: Place
) -> CountTrace:
    """Counts of a table that comes in ``chunks`` with columns of `COLUMNS`, in lower case.

    ``layer`` is an index in the checkpoint. Rows of the same domain and request are a window, in the order
    these first appear; without either column the table is one window. ``phase`` keeps the rows of one phase.
    Rows for the same expert of a window are added up. ``where`` names the table and ``place`` a row of it.

    Raises
    ------
    BadInputError
        When a column is missing or holds anything but what it should, or the table does not fit the model; the
        first row at fault is named.
    """
    read = _Table(model, phase, where, place).read(chunks)
    summed = read.counts
    if model.top_k is None:
        raise BadInputError(f"{where}: a table of counts does not say top-k", "give the model (--model DIR)")
    layers = _layers(summed["layer"].to_numpy(), model, where)
    notes = []
    experts = model.experts
    if experts is None:
        experts = read.highest_expert + 1
        notes.append(f"the number of experts was taken from the highest id, {experts - 1}")
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
    window_tokens = -(-counts.sum(axis=2).max(axis=1) // model.top_k)
    over = counts > window_tokens[:, None, None]
    if over.any():
        raise _repeated(np.argwhere(over)[0], counts, window_tokens, layers, window, read, model.top_k, place)
    if read.rows > len(summed):
        notes.append(f"{read.rows - len(summed)} rows name an expert again and were added to the first")
    if len(read.phases) > 1:
        notes.append("prefill and decode selections were added up: --phase decode keeps one of them")
    elif read.phases:
        notes.append(f"all selections are of phase {next(iter(read.phases)).name.lower()}")
    domains, grouped = domain_names(read.windows.domains)
    if len(set(domains)) > 1:
        notes += [*grouped, COUNTS_LOSE_DOMAINS]
    return CountTrace(
        header=TraceHeader(
            model=model.name or Path(where).stem,
            layers=tuple(int(layer) for layer in layers),
            experts=experts,
            top_k=model.top_k,
            source=f"{Path(where).name}: table of counts",
            domains=tuple(sorted(set(domains))),
            notes=("tokens were derived from counts and top-k", *notes),
        ),
        counts=counts,
        window_tokens=window_tokens,
    )


class _Windows:
    """Numbers the pairs of domain and request in the order they appear, over all chunks."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}

    @property
    def domains(self) -> list[str]:
        """Different domains so far; none without the column."""
        return list(dict.fromkeys(domain for domain, _ in self._numbers if domain))

    def name(self, number: int) -> str:
        """The window as its rows name it, for errors: " of request '7', domain 'law'"."""
        domain, request = list(self._numbers)[number]
        told = [f"{what} {text!r:.42}" for what, text in (("request", request), ("domain", domain)) if text]
        return f" of {', '.join(told)}" if told else ""

    def other_domain(self, number: int) -> str | None:
        """Another domain that rows of the window's request name."""
        domain, request = list(self._numbers)[number]
        return next(
            (one for one, each in self._numbers if request and each == request and one != domain), None
        )

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
    return codes.astype(np.int64), [
        "" if absent else str(text) for text, absent in zip(texts, pd.isna(texts), strict=True)
    ]


def _layers(found: NDArray[np.int64], model: KnownModel, where: str) -> NDArray[np.int64]:
    """Rising checkpoint indices of the layers; rows of other layers were refused when they were read."""
    seen = np.unique(found)
    if model.layers is None:
        return seen
    wanted = np.asarray(model.layers, dtype=np.int64)
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
        Columns of `_KEY`, ``count`` and ``row`` (the first of the key), one row per key in order of appearance.
    rows
        How many rows had counts.
    highest_expert
        Of all rows, those without counts too.
    phases
        Of the rows with counts.
    windows
        What each window is called.
    """

    counts: pd.DataFrame
    rows: int
    highest_expert: int
    phases: set[Phase]
    windows: _Windows


def _repeated(
    at: NDArray[np.int64],
    counts: NDArray[np.int64],
    tokens: NDArray[np.int64],
    layers: NDArray[np.int64],
    window_of_row: NDArray[np.int64],
    read: _Read,
    top_k: int,
    place: Place,
) -> BadInputError:
    """An expert of a window (``at``: window, layer row, expert) is counted more often than there are tokens."""
    window, layer, expert = (int(one) for one in at)
    table = read.counts
    rows = table[
        (window_of_row == window) & (table["layer"] == layers[layer]) & (table["expert"] == expert)
    ].sort_values("count", ascending=False)
    number = int(rows["window"].iloc[0])
    named = read.windows.name(number)
    other = read.windows.other_domain(number)
    selections = int(counts[window].sum(axis=1).max())
    return BadInputError(
        f"{place(int(rows['row'].iloc[0]))}: {counts[window, layer, expert]} selections of expert {expert} in layer "
        f"{layers[layer]}{named}, whose layers count {selections} at most: "
        f"{counted(int(tokens[window]), 'token')} of top-{top_k}, and a token takes an expert once",
        "correct the counts"
        + (", or give every row of a request the same domain" if named else "")
        + (f" (other rows of this request name {other!r:.42})" if other is not None else ""),
    )


class _Table:
    """Reads one table, chunk by chunk."""

    def __init__(self, model: KnownModel, phase: Phase | None, where: str, place: Place) -> None:
        self._model = model
        self._phase = phase
        self._where = where
        self._place = place
        self._windows = _Windows()
        self._start = 0

    def read(self, chunks: Iterable[pd.DataFrame]) -> _Read:
        """All chunks, rows of one key added up."""
        parts: list[pd.DataFrame] = []
        phases: set[Phase] = set()
        rows = pending = 0
        highest = -1
        for chunk in chunks:
            checked, met = self._checked(chunk)
            self._start += len(chunk)
            highest = max(highest, int(checked["expert"].max())) if len(checked) else highest
            kept = checked[checked.pop("kept") & (checked["count"] > 0)]
            phases |= met
            rows += len(kept)
            parts.append(self._grouped(kept))
            pending += len(parts[-1])
            if pending > _MOST_PENDING_ROWS:
                parts = [self._grouped(pd.concat(parts, ignore_index=True))]
                pending = len(parts[0])
        if not rows:
            what = "" if self._phase is None else f" of phase {self._phase.name.lower()}"
            raise BadInputError(
                f"{self._where}: no row{what} has a count", "record while the server answers requests"
            )
        whole = self._grouped(pd.concat(parts, ignore_index=True))
        return _Read(whole, rows, highest, phases, self._windows)

    def _grouped(self, table: pd.DataFrame) -> pd.DataFrame:
        grouped = (
            table.groupby(_KEY, sort=False, observed=True).agg({"count": "sum", "row": "min"}).reset_index()
        )
        if len(grouped) and grouped["count"].max() > _MOST_COUNT:
            one = grouped.iloc[int(np.argmax(grouped["count"]))]
            raise BadInputError(
                f"{self._place(int(one['row']))} and later: a count adds up to more than {_MOST_COUNT} (layer "
                f"{one['layer']}, expert {one['expert']}{self._windows.name(int(one['window']))})",
                "check the table",
            )
        return grouped

    def _at(self, strange: "NDArray[np.bool_] | pd.Series") -> tuple[int, str]:
        """The chunk's first row that is ``strange`` (bool [rows]), and where the table holds it."""
        first = int(np.argmax(strange))
        return first, self._place(self._start + first)

    def _checked(self, chunk: pd.DataFrame) -> tuple[pd.DataFrame, set[Phase]]:
        """The chunk's columns of `_KEY`, ``count``, ``row``, ``kept`` (of the wanted phase); phases of counts."""
        missing = [name for name in _NEEDED if name not in chunk]
        if missing:
            raise BadInputError(
                f"{self._where}: no column {', '.join(missing)}", f"name its columns {', '.join(COLUMNS)}"
            )
        chunk = chunk.reset_index(drop=True)
        table = pd.DataFrame({name: self._whole_numbers(chunk[name], name) for name in _NEEDED})
        for name, most in (("layer", 2**31), ("expert", PADDING), ("count", _MOST_COUNT + 1)):
            strange = (table[name] < 0) | (table[name] >= most)
            if strange.any():
                first, at = self._at(strange)
                raise BadInputError(
                    f"{at}: {name} {table[name][first]} is not between 0 and {most - 1}", "correct the line"
                )
        table["row"] = self._start + np.arange(len(table))
        table["kept"] = True
        phases = self._phases(chunk, table)
        self._check_model(table)
        try:
            table["window"] = self._windows.of(chunk)
        except TypeError:
            texts = chunk[[name for name in ("domain", "request") if name in chunk]]
            _, at = self._at(~texts.map(lambda one: isinstance(one, Hashable)).all(axis=1))
            raise BadInputError(
                f"{at}: domain and request must be texts or numbers", "check the table"
            ) from None
        return table, phases

    def _check_model(self, table: pd.DataFrame) -> None:
        model = self._model
        if model.experts is not None and (table["expert"] >= model.experts).any():
            first, at = self._at(table["expert"] >= model.experts)
            raise BadInputError(
                f"{at}: expert {table['expert'][first]}, the model has {model.experts} experts per layer",
                "give the model that this table is of; ids count from 0",
            )
        if model.layers is not None:
            # Rows without a count, or of the other phase, are not read.
            strange = ~table["layer"].isin(list(model.layers)) & table["kept"] & (table["count"] > 0)
            if strange.any():
                first, at = self._at(strange)
                raise BadInputError(
                    f"{at}: layer {table['layer'][first]} has no experts in the model",
                    "count layers as the checkpoint does (dense layers too), and give the model this table is of",
                )

    def _phases(self, chunk: pd.DataFrame, table: pd.DataFrame) -> set[Phase]:
        """Phases of the rows with counts; ``kept`` of ``table`` is set."""
        if "phase" not in chunk:
            if self._phase is not None:
                raise BadInputError(
                    f"{self._where}: it has no column phase, so --phase {self._phase.name.lower()} cannot be told",
                    "leave it out",
                )
            return set()
        codes, texts = _codes(chunk, "phase", len(chunk))
        named = [_PHASES.get(text.strip().lower()) for text in texts]
        if None in named:
            strange = named.index(None)
            _, at = self._at(codes == strange)
            raise BadInputError(f"{at}: phase {texts[strange][:40]!r}", "write prefill or decode")
        of_row = np.array(named, dtype=np.int64)[codes]
        if self._phase is not None:
            table["kept"] = of_row == self._phase
        return {Phase(int(one)) for one in np.unique(of_row[table["kept"] & (table["count"] > 0)])}

    def _whole_numbers(self, column: pd.Series, name: str) -> NDArray[np.int64]:
        numbers = _whole_numbers(column)
        if numbers is None:
            # The shortest beginning of the column that is not whole ends in the first value at fault.
            row = bisect_left(
                range(1, len(column)), True, key=lambda rows: _whole_numbers(column[:rows]) is None
            )
            value = column.iloc[row]
            shown = "it is empty" if isinstance(value, str) and not value.strip() else f"{value!r:.42}"
            raise BadInputError(
                f"{self._place(self._start + row)}: {name} is not a whole number ({shown})",
                "correct the line",
            )
        return numbers


def _whole_numbers(column: pd.Series) -> NDArray[np.int64] | None:
    """The column as whole numbers of 64 bits, or None where one is not."""
    try:
        numbers = pd.to_numeric(column).to_numpy()
        if numbers.dtype.kind == "f" and np.array_equal(numbers, np.floor(numbers)):
            # Infinities equal their floor too.
            numbers = numbers.astype(np.int64) if np.abs(numbers).max(initial=0) < 2**53 else numbers
        if numbers.dtype.kind == "i" or (numbers.dtype.kind == "u" and numbers.max(initial=0) < 2**63):
            return np.asarray(numbers, dtype=np.int64)
    except (ValueError, TypeError, OverflowError, AttributeError):
        pass
    return None
