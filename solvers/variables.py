"""The relaxed program's variables as one flat vector, its rows as one record, and the maps between them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.solvers.layer_view import Float64s
from placer.solvers.relaxation import Multipliers
from placer.solvers.relaxed_program import RelaxedProgram


@dataclass(frozen=True)
class Rows:
    """One number per row of the program.

    Attributes
    ----------
    main
        float64 [L, R], in the order of `RelaxedProgram.rows`.
    total
        float64 [L, S], the rows sum_j mix = 1 (all zero without columns).
    budget
        The budget row (zero without one).
    """

    main: Float64s
    total: Float64s
    budget: float

    def __add__(self, other: "Rows") -> "Rows":
        return Rows(self.main + other.main, self.total + other.total, self.budget + other.budget)

    def __sub__(self, other: "Rows") -> "Rows":
        return Rows(self.main - other.main, self.total - other.total, self.budget - other.budget)

    def times(self, factor: float) -> "Rows":
        """Every row multiplied by ``factor``."""
        return Rows(self.main * factor, self.total * factor, self.budget * factor)

    def largest(self) -> float:
        """Largest magnitude."""
        return max(float(np.abs(self.main).max()), float(np.abs(self.total).max()), abs(self.budget))


class Variables:
    """Layout of the flat vector: x [L, E], over [L, S], under [L, S], mix [L, S, M], count [L], spare [1]."""

    def __init__(self, program: RelaxedProgram) -> None:
        self.program = program
        L, R, E = program.rows.shape
        S = program.offset_us.shape[1]
        self.layers, self.steps, self.experts, self.row_count = L, S, E, R
        self.has_columns = program.column_count is not None
        self.limited = program.fewest is not None
        if program.column_count is not None and program.column_gain_us is not None:
            self.column_count = program.column_count * program.row_scale_us[:, :, None]
            self.column_gain_us = program.column_gain_us
        else:
            self.column_count = self.column_gain_us = np.zeros((L, S, 0))
        M = self.column_count.shape[2]
        self.columns = M
        sizes = [
            L * E,
            L * S,
            L * S,
            L * S * M,
            L if self.limited else 0,
            1 if program.room is not None else 0,
        ]
        ends = np.cumsum(sizes)
        self.x, self.over, self.under, self.mix, self.count, self.spare = (
            slice(int(end - size), int(end)) for end, size in zip(ends, sizes, strict=True)
        )
        self.n = int(ends[-1])
        self.cost = np.zeros(self.n)
        self.cost[self.x] = program.cost_us.ravel()
        self.cost[self.over] = 1.0
        if program.column_cost_us is not None:
            self.cost[self.mix] = program.column_cost_us.ravel()
        # The count variable is measured from `fewest`, so that every variable starts at zero.
        self.upper = np.full(self.n, np.inf)
        self.upper[self.x] = 1.0
        if program.fewest is not None and program.most is not None:
            self.upper[self.count] = program.most - program.fewest
        self.bounded: NDArray[np.bool_] = np.isfinite(self.upper)
        self.free = program.free.astype(np.float64)

    def right_side(self) -> Rows:
        """What the rows must equal."""
        program = self.program
        main = np.zeros((self.layers, self.row_count))
        main[:, : self.steps] = -program.offset_us
        if program.fewest is not None:
            main[:, -1] = program.fewest
        total = (
            np.ones((self.layers, self.steps)) if self.has_columns else np.zeros((self.layers, self.steps))
        )
        return Rows(main, total, program.room or 0.0)

    def image(self, v: Float64s) -> Rows:
        """Rows of a flat vector."""
        L, S, E = self.layers, self.steps, self.experts
        x = v[self.x].reshape(L, E)
        main = np.matmul(self.program.rows, x[:, :, None])[:, :, 0]
        main[:, :S] += (v[self.under] - v[self.over]).reshape(L, S)
        total = np.zeros((L, S))
        if self.has_columns:
            mix = v[self.mix].reshape(L, S, self.columns)
            main[:, :S] += (self.column_gain_us * mix).sum(axis=2)
            main[:, S : 2 * S] -= (self.column_count * mix).sum(axis=2)
            total = mix.sum(axis=2)
        if self.limited:
            main[:, -1] -= v[self.count]
        budget = 0.0
        if self.program.room is not None:
            budget = float(self.program.size @ (x * self.free).sum(axis=1) + v[self.spare][0])
        return Rows(main, total, budget)

    def transposed(self, rows: Rows) -> Float64s:
        """The transposed map: a flat vector from rows."""
        S = self.steps
        v = np.empty(self.n)
        x = np.matmul(rows.main[:, None, :], self.program.rows)[:, 0, :]
        if self.program.room is not None:
            x = x + rows.budget * self.program.size[:, None] * self.free
            v[self.spare] = rows.budget
        v[self.x] = x.ravel()
        step = rows.main[:, :S]
        v[self.over] = -step.ravel()
        v[self.under] = step.ravel()
        if self.has_columns:
            mix = step[:, :, None] * self.column_gain_us - rows.main[:, S : 2 * S, None] * self.column_count
            v[self.mix] = (mix + rows.total[:, :, None]).ravel()
        if self.limited:
            v[self.count] = -rows.main[:, -1]
        return v

    def start(self) -> Float64s:
        """A strictly interior start that meets the step rows and, where there is one, the budget."""
        program = self.program
        v = np.empty(self.n)
        share = 0.5
        if program.room is not None:
            share = float(
                np.clip(program.room / max((program.size @ self.free.sum(axis=1)), 1e-9), 1e-3, 0.95)
            )
        v[self.x] = share
        v[self.mix] = 1.0 / max(self.columns, 1)
        if program.fewest is not None and program.most is not None:
            count = share * self.free.sum(axis=1) - program.fewest
            width = program.most - program.fewest
            v[self.count] = np.clip(count, 0.2 * width, 0.8 * width)
        if program.room is not None:
            used = share * float(program.size @ self.free.sum(axis=1))
            v[self.spare] = max(program.room - used, 0.05 * program.room + 1e-3)
        v[self.over] = v[self.under] = 0.0
        ahead = self.image(v).main[:, : self.steps] + program.offset_us
        cushion = 0.1 * np.abs(program.offset_us) + 0.1 * program.row_scale_us
        v[self.over] = (np.maximum(ahead, 0.0) + cushion).ravel()
        v[self.under] = (np.maximum(-ahead, 0.0) + cushion).ravel()
        return v

    def start_rows(self) -> Rows:
        """Dual start: both sides of every max() weigh the same, and a price in the range of the costs."""
        main = np.zeros((self.layers, self.row_count))
        main[:, : self.steps] = -0.5
        price = 0.0
        if self.program.room is not None:
            price = -max(0.3 * float(-np.median(self.program.cost_us)), 1e-3 * float(np.abs(self.cost).max()))
        return Rows(main, np.zeros((self.layers, self.steps)), price)

    def multipliers(self, rows: Rows, price: float | None) -> Multipliers:
        """Read the multipliers of the bound off the dual values."""
        S = self.steps
        tilt = np.zeros((self.layers, S))
        if self.has_columns:
            tilt = -rows.main[:, S : 2 * S] * self.program.row_scale_us
        if price is None:
            price = max(0.0, -rows.budget) / self.program.byte_unit if self.program.room is not None else 0.0
        return Multipliers(price, np.clip(-rows.main[:, :S], 0.0, 1.0), tilt)

    def fraction(self, v: Float64s) -> Float64s:
        """The x part: float64 [L, E]."""
        return v[self.x].reshape(self.layers, self.experts).copy()
