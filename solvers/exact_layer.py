"""One mixed layer solved exactly at a fixed price, by HiGHS."""

import os
import threading
from dataclasses import dataclass

import highspy
import numpy as np

from placer.solvers.deadline import Deadline
from placer.solvers.decided import Decided
from placer.solvers.highs_engine import highs_engine
from placer.solvers.layer_program import layer_program
from placer.solvers.layer_view import LayerView
from placer.solvers.problem import Mask
from placer.solvers.relaxation import MixedLayers

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
    relaxed: MixedLayers | None = None,
    gap_us: float,
    nodes: int,
    deadline: Deadline,
    called_off: threading.Event,
) -> ExactLayer:
    """Branch and bound over the free experts of ``layer``, from the placement ``start`` (bool [E]).

    The layer is taken as mixed: ALWAYS and ANY_MEMBER charges are paid, and the count stays within the
    mixed bounds. ``relaxed`` lets the search start at the bound of a relaxation. HiGHS's own heuristics and
    presolve are off: ``start`` comes from a better search and the models are small and dense. It ends early
    when ``called_off`` is set.

    Call it from a worker thread: HiGHS fixes the number of its own threads once per calling thread, and
    this asks for one.
    """
    if deadline.passed() or called_off.is_set():
        return ExactLayer(-np.inf, None, False)
    program = layer_program(view, layer, decided, price, relaxed)
    if len(program.experts) == 0:
        cost = float(program.model.offset_ + program.values(start).sum())
        return ExactLayer(cost - TOLERANCE * (abs(cost) + 1.0), decided.hot[layer].copy(), True)
    engine = highs_engine()
    for option, setting in {
        "threads": 1,
        "parallel": "off",
        "presolve": "off",
        "mip_heuristic_effort": 0.0,
        "mip_detect_symmetry": False,
        "mip_allow_restart": False,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": gap_us,
        "mip_max_nodes": nodes,
        "time_limit": deadline.left_s(),
    }.items():
        engine.setOptionValue(option, setting)
    # Asked for inside the branch and bound, so that work nobody waits for any more ends at once.
    engine.cbMipInterrupt += lambda event: event.interrupt() if called_off.is_set() else None
    engine.passModel(program.model)
    known = highspy.HighsSolution()
    known.col_value = list(program.values(start))
    engine.setSolution(known)
    if engine.run() == highspy.HighsStatus.kError:
        # Nothing that the engine holds then is a bound.
        return ExactLayer(-np.inf, None, False)
    status, info = engine.getModelStatus(), engine.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible:
        return ExactLayer(np.inf, None, True)
    floor = float(info.mip_dual_bound)
    if not abs(floor) < highspy.kHighsInf:
        return ExactLayer(-np.inf, None, False)
    floor -= TOLERANCE * (abs(floor - program.model.offset_) + 1.0)
    hot = None
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        hot = decided.hot[layer].copy()
        hot[program.experts] = np.asarray(engine.getSolution().col_value)[: len(program.experts)] > 0.5
    return ExactLayer(floor, hot, status == highspy.HighsModelStatus.kOptimal)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
