"""One mixed layer solved exactly at a fixed price: a small mixed-integer program for HiGHS."""

from dataclasses import dataclass

import highspy
import numpy as np
from scipy import sparse

from placer.solvers.decided import Decided
from placer.solvers.highs_engine import highs_engine
from placer.solvers.layer_view import Float64s, LayerView
from placer.solvers.problem import FixedCharge, Mask

TOLERANCE = 1e-6
"""HiGHS's feasibility tolerance for integers and rows; its bound is lowered by this share of its size."""


@dataclass(frozen=True)
class ExactLayer:
    """What a layer's program gave.

    Attributes
    ----------
    floor_us
        Proven lower bound on the priced cost of the placements that agree with the decided experts.
    hot
        bool [E], best placement found, or None.
    closed
        Whether the search ended by itself rather than at a limit.
    """

    floor_us: float
    hot: Mask | None
    closed: bool


def solve_layer(
    view: LayerView,
    layer: int,
    decided: Decided,
    price: float,
    start: Mask,
    *,
    gap: float,
    nodes: int,
    time_limit_s: float,
) -> ExactLayer:
    """Branch and bound over the free experts of ``layer``, from the placement ``start`` (bool [E]).

    The layer is taken as mixed: `FixedCharge.ALWAYS` and `ANY_MEMBER` charges are paid, and the count
    stays within the mixed bounds. HiGHS's own heuristics and presolve are off: ``start`` comes from a
    better search and the models are small and dense.
    """
    program = _program(view, layer, decided, price)
    solver = highs_engine()
    for option, setting in {
        "threads": 1,
        "parallel": "off",
        "presolve": "off",
        "mip_heuristic_effort": 0.0,
        "mip_detect_symmetry": False,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": gap,
        "mip_max_nodes": nodes,
        "time_limit": time_limit_s,
    }.items():
        solver.setOptionValue(option, setting)
    solver.passModel(program.model)
    known = highspy.HighsSolution()
    known.col_value = list(program.start_values(start))
    solver.setSolution(known)
    solver.run()
    status, info = solver.getModelStatus(), solver.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible:
        return ExactLayer(np.inf, None, True)
    floor = float(info.mip_dual_bound)
    if not np.isfinite(floor):
        return ExactLayer(-np.inf, None, False)
    floor -= TOLERANCE * (abs(floor - program.model.offset_) + 1.0)
    hot = None
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        hot = decided.hot[layer].copy()
        hot[program.experts] = np.asarray(solver.getSolution().col_value)[: len(program.experts)] > 0.5
    return ExactLayer(floor, hot, status == highspy.HighsModelStatus.kOptimal)


@dataclass(frozen=True)
class _Program:
    """Columns: x of the free experts, time of each step, then one charge indicator per charged step and side."""

    model: highspy.HighsLp
    experts: np.ndarray[tuple[int], np.dtype[np.int64]]
    hot_us: Float64s
    cold_us: Float64s
    hot_base_us: Float64s
    cold_base_us: Float64s
    hot_charge_us: Float64s
    cold_charge_us: Float64s
    hot_charged: np.ndarray[tuple[int], np.dtype[np.int64]]
    cold_charged: np.ndarray[tuple[int], np.dtype[np.int64]]

    def start_values(self, start: Mask) -> Float64s:
        x = start[self.experts].astype(np.float64)
        hot = self.hot_base_us + self.hot_us @ x
        cold = self.cold_base_us + self.cold_us @ (1.0 - x)
        pays_hot = ((self.hot_us[self.hot_charged] > 0) @ x > 0).astype(np.float64)
        pays_cold = ((self.cold_us[self.cold_charged] > 0) @ (1.0 - x) > 0).astype(np.float64)
        hot[self.hot_charged] += self.hot_charge_us[self.hot_charged] * pays_hot
        cold[self.cold_charged] += self.cold_charge_us[self.cold_charged] * pays_cold
        return np.concatenate([x, np.maximum(hot, cold), pays_hot, pays_cold])


def _program(view: LayerView, layer: int, decided: Decided, price: float) -> _Program:
    _, S, _ = view.shape
    free = np.flatnonzero(decided.free[layer])
    settled_hot = decided.hot[layer]
    F = len(free)
    hot, cold = view.hot_us[layer][:, free], view.cold_us[layer][:, free]
    hot_base = view.hot_us[layer][:, settled_hot].sum(axis=1)
    cold_base = view.cold_us[layer][:, decided.cold[layer]].sum(axis=1)
    hot_charge, cold_charge = view.hot_fixed_us[layer], view.cold_fixed_us[layer]
    # A charge becomes a column only where it can go unpaid and that can show in the maximum.
    hot_open = (view.hot_fixed_when is FixedCharge.ANY_ACTIVE) & (hot_base <= 0) & (hot_charge > 0)
    cold_open = (view.cold_fixed_when is FixedCharge.ANY_ACTIVE) & (cold_base <= 0) & (cold_charge > 0)
    hot_charged = np.flatnonzero(hot_open & (hot_charge > cold_base + cold.sum(axis=1) + cold_charge * ~cold_open))
    cold_charged = np.flatnonzero(cold_open & (cold_charge > hot_base + hot.sum(axis=1) + hot_charge * ~hot_open))
    never_hot = (hot_base <= 0) & (hot.sum(axis=1) <= 0) & (view.hot_fixed_when is FixedCharge.ANY_ACTIVE)
    never_cold = (cold_base <= 0) & (cold.sum(axis=1) <= 0) & (view.cold_fixed_when is FixedCharge.ANY_ACTIVE)
    hot_base = hot_base + np.where(never_hot, 0.0, hot_charge)
    cold_base = cold_base + np.where(never_cold, 0.0, cold_charge)
    hot_base[hot_charged] -= hot_charge[hot_charged]
    cold_base[cold_charged] -= cold_charge[cold_charged]

    identity = sparse.identity(S, format="csr")
    charges = len(hot_charged) + len(cold_charged)
    pays = sparse.lil_matrix((2 * S, charges))
    for column, step in enumerate(hot_charged):
        pays[step, column] = -hot_charge[step]
    for column, step in enumerate(cold_charged, start=len(hot_charged)):
        pays[S + step, column] = -cold_charge[step]
    sides = sparse.vstack([sparse.csr_matrix(-hot), sparse.csr_matrix(cold)])
    blocks = [sparse.hstack([sides, sparse.vstack([identity, identity]), pays])]
    lower = [hot_base, cold_base + cold.sum(axis=1)]
    upper = [np.full(2 * S, highspy.kHighsInf)]
    linkers: list[tuple[int, int, float]] = []
    for column, step in enumerate(hot_charged):
        linkers += [(F + S + column, int(e), -1.0) for e in np.flatnonzero(hot[step] > 0)]
    for column, step in enumerate(cold_charged, start=len(hot_charged)):
        linkers += [(F + S + column, int(e), 1.0) for e in np.flatnonzero(cold[step] > 0)]
    if linkers:
        # charge >= x (hot side), charge >= 1 - x (cold side), for every expert with a cost in the step.
        links = sparse.lil_matrix((len(linkers), F + S + charges))
        for row, (charge, expert, sign) in enumerate(linkers):
            links[row, charge], links[row, expert] = 1.0, sign
        blocks.append(links)
        lower.append(np.array([0.0 if sign < 0 else 1.0 for _, _, sign in linkers]))
        upper.append(np.full(len(linkers), highspy.kHighsInf))
    settled = int(settled_hot.sum())
    fewest, most = int(view.fewest[layer]) - settled, int(view.most[layer]) - settled
    if fewest > 0 or most < F:
        ones = np.concatenate([np.ones(F), np.zeros(S + charges)])
        blocks.append(sparse.csr_matrix(ones))
        lower.append(np.array([float(fewest)]))
        upper.append(np.array([float(most)]))

    matrix = sparse.vstack(blocks).tocsr()
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = F + S + charges, matrix.shape[0]
    each = view.linear_us[layer] + price * view.expert_bytes[layer]
    model.offset_ = float(each[settled_hot].sum())
    model.col_cost_ = np.concatenate([each[free], np.ones(S), np.zeros(charges)])
    model.col_lower_ = np.zeros(F + S + charges)
    model.col_upper_ = np.concatenate([np.ones(F), np.full(S, highspy.kHighsInf), np.ones(charges)])
    model.row_lower_ = np.concatenate(lower)
    model.row_upper_ = np.concatenate(upper)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = matrix.indptr
    model.a_matrix_.index_ = matrix.indices
    model.a_matrix_.value_ = matrix.data
    model.integrality_ = [highspy.HighsVarType.kInteger] * F + [highspy.HighsVarType.kContinuous] * (S + charges)
    return _Program(
        model, free, hot, cold, hot_base, cold_base, hot_charge, cold_charge, hot_charged, cold_charged
    )
