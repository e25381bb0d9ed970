"""The integer linear program of an instance's levels as sparse arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from placer.solvers.problem import FixedCharge, Mask, PlacementProblem

Indices = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class SparseProgram:
    """min cost·y over rows_low <= A y <= rows_high, column bounds, and some columns integer.

    Attributes
    ----------
    matrix
        A, in compressed rows.
    placements
        int [L, E] for each level: the column of x_le.
    chosen
        Column of each level's binary z.
    """

    cost: Values
    column_low: Values
    column_high: Values
    integer: NDArray[np.bool_]
    matrix: csr_array
    row_low: Values
    row_high: Values
    placements: tuple[Indices, ...]
    chosen: tuple[int, ...]

    def placement(self, values: Values) -> tuple[int, Mask]:
        """The level that a solution's column ``values`` choose, and its placement (bool [L, E])."""
        level = int(np.argmax(values[list(self.chosen)]))
        return level, np.asarray(values[self.placements[level]] > 0.5)


def sparse_program(levels: Sequence[PlacementProblem]) -> SparseProgram:
    """Write the program of choosing one of ``levels`` and a placement in it.

    Every level has a copy of its columns, scaled by its binary z (one level: z is 1), so that no large
    constant is needed: sum z = 1, x_le <= z, and with t, the time of a layer-step, at least either side

        t >= sum_e hot_e x_e + h0 (z or p)        t + sum_e cold_e x_e >= z sum_e cold_e + c0 (z or q)
        t >= z idle                               t + f cold_e x_e >= z f cold_e + c0 (z or q)  for each e

    with the weight f of the heaviest cold expert where it is above 1.

    p and q are binary and carry a charge that depends on the placement (see `FixedCharge`): n p >= sum x_e
    and n q >= sum (z - x_e) over the n experts that it hangs on. A row for each expert is the stronger
    relaxation, but has fifty times the rows: HiGHS then spends minutes in its first linear program, where
    with the sums it adds the missing cuts itself and has better placements from the first seconds on.

    It is built without PuLP, whose time on large instances no solver should be charged for.
    """
    writer = _Writer()
    placements, chosen = [], []
    for problem in levels:
        z = int(writer.columns(1, cost=problem.constant_us, low=float(len(levels) == 1), integer=True)[0])
        chosen.append(z)
        placements.append(_write_level(writer, problem, z, alone=len(levels) == 1))
    if len(levels) > 1:
        writer.rows(np.zeros(len(chosen), dtype=np.int64), np.array(chosen), 1.0, count=1, low=1.0, high=1.0)
    return writer.program(tuple(placements), tuple(chosen))


def _write_level(writer: "_Writer", problem: PlacementProblem, z: int, *, alone: bool) -> Indices:
    kept = np.flatnonzero(problem.weight > 0)
    _, L, E = problem.shape
    x = writer.columns(L * E, cost=problem.linear_us.ravel().astype(np.float64), integer=True).reshape(L, E)
    if not alone:
        each = np.arange(L * E)
        writer.rows(each, x.ravel(), -1.0, count=L * E, z=(z, 1.0))
    layer_of = np.repeat(np.arange(L), E)
    least, most = np.clip(problem.min_hot, 0, None), np.minimum(problem.max_hot, E)
    for bound, sign in ((least, 1.0), (-most, -1.0)):
        if np.any(least > 0) if sign > 0 else np.any(most < E):
            writer.rows(layer_of, x.ravel(), sign, count=L, z=(z, -bound.astype(np.float64)))
    writer.rows(
        np.zeros(L * E, dtype=np.int64),
        x.ravel(),
        -np.repeat(problem.expert_bytes, E).astype(np.float64),
        count=1,
        z=(z, float(problem.budget_bytes)),
    )
    times = writer.columns(
        len(kept) * L, cost=np.repeat(problem.weight[kept].astype(np.float64), L), high=np.inf
    )
    if problem.cold_idle_us is not None:
        idle = problem.cold_idle_us[kept].astype(np.float64).ravel()
        writer.rows(np.arange(len(times)), times, 1.0, count=len(times), z=(z, -idle))
    sides = (
        (problem.hot_us, problem.hot_fixed_us, problem.hot_fixed_when, True),
        (problem.cold_us, problem.cold_fixed_us, problem.cold_fixed_when, False),
    )
    for costs, fixed, when, hot in sides:
        us = costs[kept].astype(np.float64).reshape(-1, E)
        row, expert = np.nonzero(us)
        sign = -1.0 if hot else 1.0
        columns = x[row % L, expert]
        charge = fixed[kept].astype(np.float64).ravel()
        constant = np.zeros(len(us)) if hot else us.sum(axis=1)
        entries = [(row, columns, sign * us[row, expert]), (np.arange(len(us)), times, np.ones(len(us)))]
        payers = np.full(len(us), -1)
        if when is FixedCharge.ALWAYS:
            constant = constant + charge
        else:
            payers = _payers(writer, x, z, us > 0, when, hot=hot)
            paid = np.flatnonzero((payers >= 0) & (charge != 0))
            entries.append((paid, payers[paid], -charge[paid]))
        _write_rows(writer, entries, len(us), (z, -constant))
        if hot or problem.heaviest_factor is None:
            continue
        factor = np.repeat(problem.heaviest_factor[kept].astype(np.float64), L)
        heavy = np.flatnonzero(factor[row] > 1)
        if not heavy.size:
            continue
        each, at = np.arange(heavy.size), row[heavy]
        weighted = factor[at] * us[at, expert[heavy]]
        entries = [(each, columns[heavy], weighted), (each, times[at], np.ones(heavy.size))]
        if when is FixedCharge.ALWAYS:
            weighted = weighted + charge[at]
        else:
            paid = np.flatnonzero((payers[at] >= 0) & (charge[at] != 0))
            entries.append((paid, payers[at][paid], -charge[at][paid]))
        _write_rows(writer, entries, heavy.size, (z, -weighted))
    return x


def _write_rows(
    writer: "_Writer", entries: list[tuple[Indices, Indices, Values]], count: int, z: tuple[int, Values]
) -> None:
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    writer.rows(rows, columns, values, count=count, z=z)


def _payers(
    writer: "_Writer",
    x: Indices,
    z: int,
    active: Mask,
    when: FixedCharge,
    *,
    hot: bool,
) -> Indices:
    """The column that pays a side's charge in each layer-step (int [S·L], -1 where nothing can); its rows."""
    L, E = x.shape
    if when is FixedCharge.ANY_MEMBER:
        member, expert = np.divmod(np.arange(L * E), E)
        count, layer_of = L, np.arange(L)
        of_row = np.tile(np.arange(L), len(active) // L)
    else:
        of_row = np.where(active.any(axis=1), np.cumsum(active.any(axis=1)) - 1, -1)
        rows, expert = np.nonzero(active)
        member, count = of_row[rows], int(of_row.max()) + 1
        layer_of = np.flatnonzero(active.any(axis=1)) % L
    pays = writer.columns(count, integer=True)
    columns = x[layer_of[member], expert]
    sign = -1.0 if hot else 1.0
    if when is FixedCharge.ANY_MEMBER:
        each, size = np.arange(len(member)), np.ones(len(member))
        row_of, payer_of, height = each, pays[member], len(member)
    else:
        size = np.bincount(member, minlength=count).astype(np.float64)
        row_of, payer_of, height = member, pays, count
    writer.rows(
        np.concatenate([np.arange(height), row_of]),
        np.concatenate([payer_of, columns]),
        np.concatenate([size, np.full(len(member), sign)]),
        count=height,
        z=None if hot else (z, -size),
    )
    payers = np.full(len(active), -1)
    payers[of_row >= 0] = pays[of_row[of_row >= 0]]
    return payers


class _Writer:
    """Columns and rows as they are added; every row but the choice of a level reads A y >= 0."""

    def __init__(self) -> None:
        self._columns: list[tuple[Values, Values, Values, NDArray[np.bool_]]] = []
        self._entries: list[tuple[Indices, Indices, Values]] = []
        self._bounds: list[tuple[Values, Values]] = []
        self._width = self._height = 0

    def columns(
        self,
        count: int,
        *,
        cost: float | Values = 0.0,
        low: float = 0.0,
        high: float = 1.0,
        integer: bool = False,
    ) -> Indices:
        """Add ``count`` columns; their indices."""
        self._columns.append(
            (
                np.broadcast_to(cost, count),
                np.full(count, low),
                np.full(count, high),
                np.full(count, integer),
            )
        )
        self._width += count
        return np.arange(self._width - count, self._width)

    def rows(
        self,
        rows: Indices,
        columns: Indices,
        values: float | Values,
        *,
        count: int,
        low: float = 0.0,
        high: float = np.inf,
        z: tuple[int, float | Values] | None = None,
    ) -> None:
        """Add ``count`` rows from entries whose row numbers start at 0; ``z`` is one column in all of them."""
        self._entries.append((rows + self._height, columns, np.broadcast_to(values, len(rows))))
        if z is not None:
            each = np.arange(self._height, self._height + count)
            self._entries.append((each, np.full(count, z[0]), np.broadcast_to(z[1], count)))
        self._bounds.append((np.full(count, low), np.full(count, high)))
        self._height += count

    def program(self, placements: tuple[Indices, ...], chosen: tuple[int, ...]) -> SparseProgram:
        cost, low, high, integer = (np.concatenate(part) for part in zip(*self._columns, strict=True))
        rows, columns, values = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        row_low, row_high = (np.concatenate(part) for part in zip(*self._bounds, strict=True))
        used = values != 0
        matrix = csr_array(
            (values[used], (rows[used], columns[used])), shape=(self._height, self._width), dtype=np.float64
        )
        return SparseProgram(
            cost, low, high, integer.astype(bool), matrix, row_low, row_high, placements, chosen
        )
