"""The mixed-integer program of one mixed layer at a fixed price."""

from dataclasses import dataclass, field
from itertools import pairwise

import highspy
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from placer.solvers.decided import Decided
from placer.solvers.layer_view import Float64s, LayerView
from placer.solvers.problem import FixedCharge, Mask
from placer.solvers.relaxation import MixedLayers


@dataclass(frozen=True)
class LayerProgram:
    """Columns: x of the free experts, time of each step, then one indicator per charge that can go unpaid.

    ``charge_members[i]`` are the free experts (positions) that make charge i due, and ``charge_on_hot[i]``
    says on which side.
    """

    model: highspy.HighsLp
    experts: NDArray[np.int64]
    time_of: "_StepTimes"
    charge_members: list[NDArray[np.int64]]
    charge_on_hot: list[bool]

    def values(self, hot: Mask) -> Float64s:
        """Values of all columns for the layer's placement ``hot`` (bool [E])."""
        x = hot[self.experts].astype(np.float64)
        pays = [
            float(np.any(x[members] > 0) if on_hot else np.any(x[members] < 1))
            for members, on_hot in zip(self.charge_members, self.charge_on_hot, strict=True)
        ]
        return np.concatenate([x, self.time_of(x), np.asarray(pays)])


@dataclass(frozen=True)
class _StepTimes:
    """Sides of one layer over its free experts; arrays [S, F] and [S]."""

    hot_us: Float64s
    cold_us: Float64s
    hot_settled_us: Float64s
    cold_settled_us: Float64s
    hot_charge_us: Float64s
    cold_charge_us: Float64s
    hot_by_active: bool
    cold_by_active: bool
    heaviest_factor: Float64s
    settled_heaviest_us: Float64s

    def __call__(self, x: Float64s) -> Float64s:
        """Exact time of every step: float64 [S] from x [F]."""
        hot = self.hot_settled_us + self.hot_us @ x
        cold = self.cold_settled_us + self.cold_us @ (1.0 - x)
        heaviest = (self.cold_us * (1.0 - x)).max(axis=1, initial=0.0)
        cold = np.maximum(cold, self.heaviest_factor * np.maximum(heaviest, self.settled_heaviest_us))
        hot = hot + self.hot_charge_us * (~np.asarray(self.hot_by_active) | (hot > 0))
        cold = cold + self.cold_charge_us * (~np.asarray(self.cold_by_active) | (cold > 0))
        return np.asarray(np.maximum(hot, cold))


@dataclass
class _Rows:
    """Rows sum value * column >= lower, collected one by one."""

    row: list[NDArray[np.int64]] = field(default_factory=list)
    column: list[NDArray[np.int64]] = field(default_factory=list)
    value: list[Float64s] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)

    def add(self, columns: NDArray[np.int64], values: Float64s, lower: float) -> None:
        self.row.append(np.full(len(columns), len(self.lower)))
        self.column.append(columns)
        self.value.append(values)
        self.lower.append(lower)

    def matrix(self, columns: int) -> sparse.csr_matrix:
        entries = (np.concatenate(self.value), (np.concatenate(self.row), np.concatenate(self.column)))
        return sparse.csr_matrix(entries, shape=(len(self.lower), columns))


def layer_program(
    view: LayerView, layer: int, decided: Decided, price: float, relaxed: MixedLayers | None = None
) -> LayerProgram:
    """Write the program: min sum of step times + (linear + price of bytes) x, counts within the mixed bounds.

    A step in which all free experts with a cost are alike costs a function of their count: its lower
    convex hull over whole counts takes the place of the two sides of max(), which makes the linear
    relaxation of that step exact. Elsewhere both sides are rows, and so is each expert that the max-term may
    make the cold side; a charge that can go unpaid where it
    shows has an indicator, at least x (hot side) or 1 - x (cold side) of every expert with a cost.
    ``relaxed``, evaluated with no more experts decided than ``decided``, adds a row per step that holds what
    it knows of whole counts.
    """
    _, S, _ = view.shape
    free = np.flatnonzero(decided.free[layer])
    F = len(free)
    settled = decided.hot[layer]
    times = _StepTimes(
        hot_us=view.hot_us[layer][:, free],
        cold_us=view.cold_us[layer][:, free],
        hot_settled_us=view.hot_us[layer][:, settled].sum(axis=1),
        cold_settled_us=view.cold_us[layer][:, decided.cold[layer]].sum(axis=1),
        hot_charge_us=view.hot_fixed_us[layer],
        cold_charge_us=view.cold_fixed_us[layer],
        hot_by_active=view.hot_fixed_when is FixedCharge.ANY_ACTIVE,
        cold_by_active=view.cold_fixed_when is FixedCharge.ANY_ACTIVE,
        heaviest_factor=np.zeros(S) if view.heaviest_factor is None else view.heaviest_factor,
        settled_heaviest_us=view.cold_us[layer][:, decided.cold[layer]].max(axis=1, initial=0.0),
    )
    rows = _Rows()
    charge_us: list[float] = []
    members: list[NDArray[np.int64]] = []
    on_hot: list[bool] = []
    for step in range(S):
        active = np.flatnonzero((times.hot_us[step] > 0) | (times.cold_us[step] > 0))
        time = F + step
        if len(active) == 0 or (
            np.ptp(times.hot_us[step, active]) == 0 and np.ptp(times.cold_us[step, active]) == 0
        ):
            for slope, level in _hull(_time_by_count(times, step, active)):
                rows.add(np.append(active, time), np.append(np.full(len(active), -slope), 1.0), level)
            continue
        for hot_side in (True, False):
            base, charge, may_go_unpaid = _side(times, step, hot_side)
            cost = times.hot_us[step] if hot_side else times.cold_us[step]
            paying = np.flatnonzero(cost > 0)
            columns, values = (
                np.append(paying, time),
                np.append(-cost[paying] if hot_side else cost[paying], 1.0),
            )
            lower = base if hot_side else base + float(cost.sum())
            if may_go_unpaid:
                indicator = F + S + len(charge_us)
                columns, values = np.append(columns, indicator), np.append(values, -charge)
                for expert in paying:
                    sign = -1.0 if hot_side else 1.0
                    rows.add(np.array([indicator, expert]), np.array([1.0, sign]), 0.0 if hot_side else 1.0)
                charge_us.append(charge)
                members.append(paying)
                on_hot.append(hot_side)
            rows.add(columns, values, lower)
            if not hot_side and times.heaviest_factor[step] > 1:
                shared = columns[len(paying) :], values[len(paying) :]
                factor, settled_us = (
                    float(times.heaviest_factor[step]),
                    float(times.settled_heaviest_us[step]),
                )
                rows.add(*shared, base - float(times.cold_settled_us[step]) + factor * settled_us)
                for expert in paying:
                    heavy = factor * float(cost[expert])
                    rows.add(
                        np.append(expert, shared[0]),
                        np.append(heavy, shared[1]),
                        base - float(times.cold_settled_us[step]) + heavy,
                    )
    if relaxed is not None:
        _add_relaxed(rows, view, layer, decided, relaxed)
    width = F + S + len(charge_us)
    fewest, most = int(view.fewest[layer] - settled.sum()), int(view.most[layer] - settled.sum())
    if fewest > 0:
        rows.add(np.arange(F), np.ones(F), float(fewest))
    if most < F:
        rows.add(np.arange(F), -np.ones(F), -float(most))

    matrix = rows.matrix(width)
    each = view.linear_us[layer] + price * view.expert_bytes[layer]
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = width, matrix.shape[0]
    model.offset_ = float(each[settled].sum())
    model.col_cost_ = np.concatenate([each[free], np.ones(S), np.zeros(len(charge_us))])
    model.col_lower_ = np.zeros(width)
    model.col_upper_ = np.concatenate([np.ones(F), np.full(S, highspy.kHighsInf), np.ones(len(charge_us))])
    model.row_lower_ = np.asarray(rows.lower)
    model.row_upper_ = np.full(matrix.shape[0], highspy.kHighsInf)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = matrix.indptr
    model.a_matrix_.index_ = matrix.indices
    model.a_matrix_.value_ = matrix.data
    kinds = [highspy.HighsVarType.kInteger] * F + [highspy.HighsVarType.kContinuous] * (width - F)
    model.integrality_ = kinds
    return LayerProgram(model, free, times, members, on_hot)


def _add_relaxed(rows: _Rows, view: LayerView, layer: int, decided: Decided, relaxed: MixedLayers) -> None:
    """Rows time >= a H + (1 - a) C + g k + least of step 3 in `relaxation`'s proof."""
    free = np.flatnonzero(decided.free[layer])
    hot, cold = view.hot_us[layer], view.cold_us[layer]
    share, tilt = relaxed.multipliers.hot_share[layer], relaxed.multipliers.tilt_us[layer]
    counted = ((hot > 0) | (cold > 0)) & relaxed.decided.free[layer]
    slope = share[:, None] * hot - (1.0 - share)[:, None] * cold + tilt[:, None] * counted
    level = (1.0 - share) * cold.sum(axis=1) + relaxed.least_us[layer]
    level = level + slope[:, decided.hot[layer]].sum(axis=1)
    level = level - 1e-9 * (np.abs(level) + np.abs(slope).sum(axis=1))
    for step in np.flatnonzero(np.isfinite(level)):
        row = slope[step, free]
        taking = np.flatnonzero(row)
        columns = np.append(taking, len(free) + step)
        rows.add(columns, np.append(-row[taking], 1.0), float(level[step]))


def _side(times: _StepTimes, step: int, hot_side: bool) -> tuple[float, float, bool]:
    """Settled cost of one side of a step, its charge, and whether the charge needs an indicator.

    It does where it may go unpaid and is longer than the other side can then be; where it is not, the
    maximum does not see it, and where no expert of the side has a cost it is never paid.
    """
    hot, cold = float(times.hot_us[step].sum()), float(times.cold_us[step].sum())
    settled = (float(times.hot_settled_us[step]), float(times.cold_settled_us[step]))
    charges = (float(times.hot_charge_us[step]), float(times.cold_charge_us[step]))
    by_active = (times.hot_by_active, times.cold_by_active)
    this, other = (0, 1) if hot_side else (1, 0)
    totals = (hot, cold)
    if by_active[this] and settled[this] <= 0:
        if totals[this] <= 0:
            return settled[this], 0.0, False
        other_charge = 0.0 if by_active[other] and settled[other] <= 0 else charges[other]
        if charges[this] > settled[other] + totals[other] + other_charge:
            return settled[this], charges[this], True
    return settled[this] + charges[this], charges[this], False


def _time_by_count(times: _StepTimes, step: int, active: NDArray[np.int64]) -> Float64s:
    """Exact time of a step by the number of its (alike) active free experts that are hot: float64 [K + 1]."""
    K = len(active)
    each_hot = float(times.hot_us[step, active[0]]) if K else 0.0
    each_cold = float(times.cold_us[step, active[0]]) if K else 0.0
    counts = np.arange(K + 1)
    hot = times.hot_settled_us[step] + each_hot * counts
    cold = times.cold_settled_us[step] + each_cold * (K - counts)
    heaviest = np.maximum(each_cold * (counts < K), times.settled_heaviest_us[step])
    cold = np.maximum(cold, times.heaviest_factor[step] * heaviest)
    hot = hot + times.hot_charge_us[step] * (~np.asarray(times.hot_by_active) | (hot > 0))
    cold = cold + times.cold_charge_us[step] * (~np.asarray(times.cold_by_active) | (cold > 0))
    return np.asarray(np.maximum(hot, cold))


def _hull(value: Float64s) -> list[tuple[float, float]]:
    """Slope and level at zero of every piece of the lower convex hull of value[k], k = 0, 1, ..."""
    corners = [0]
    for k in range(1, len(value)):
        while len(corners) >= 2:
            a, b = corners[-2], corners[-1]
            if (value[b] - value[a]) * (k - b) < (value[k] - value[b]) * (b - a):
                break
            corners.pop()
        corners.append(k)
    if len(corners) == 1:
        return [(0.0, float(value[0]))]
    pieces = []
    for a, b in pairwise(corners):
        slope = float(value[b] - value[a]) / (b - a)
        pieces.append((slope, float(value[a]) - slope * a))
    return pieces
