"""The integer linear program of a placement problem, written with PuLP."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pulp
from numpy.typing import NDArray

from placer.solvers.problem import FixedCharge, Floats, Mask, PlacementProblem


@dataclass(frozen=True)
class ExpertColumn:
    """One integer column: ``experts`` of ``layer`` that are interchangeable, as a count of hot ones.

    Experts without a cost in any step and with the same linear term are interchangeable; every other
    expert has a column of its own.
    """

    layer: int
    experts: NDArray[np.int64]
    variable: Any


@dataclass(frozen=True)
class IlpModel:
    """A PuLP problem and the columns that carry the placement; ``constant_us`` is not in it."""

    program: Any
    columns: tuple[ExpertColumn, ...]
    shape: tuple[int, int]

    def placement(self) -> Mask:
        """Read the placement off the columns' values: bool [L, E]."""
        hot = np.zeros(self.shape, dtype=bool)
        for column in self.columns:
            count = round(column.variable.varValue or 0.0)
            hot[column.layer, column.experts[:count]] = True
        return hot


@dataclass(frozen=True)
class TimeLimit:
    """A second weighted sum of the same step times that may not exceed ``most_us``.

    Attributes
    ----------
    weight
        float [S], zero where the problem's own is.
    linear_us
        float [L, E], added per hot expert.
    most_us
        What the sum may be, without any constant.
    """

    weight: Floats
    linear_us: Floats
    most_us: float


def ilp_model(problem: PlacementProblem, limits: Sequence[TimeLimit] = ()) -> IlpModel:
    """Write the program.

    min sum_s weight_s sum_l t_sl + linear x, with t at least either side and the cold side's idle cost. A charge
    that depends on the placement is a column u in [0, 1]: for ANY_MEMBER one binary per layer and side, at least
    x_e (hot) or 1 - x_e (cold) of every expert; for ANY_ACTIVE one per layer-step and side, over the experts with
    a cost in that step. Steps of weight zero are left out. Each of ``limits`` is a row of its own.
    """
    _, L, E = problem.shape
    kept = np.flatnonzero(problem.weight > 0)
    program = pulp.LpProblem("placement", pulp.LpMinimize)
    columns: list[ExpertColumn] = []
    objective: list[tuple[Any, float]] = []
    bytes_used: list[tuple[Any, float]] = []
    limited: list[list[tuple[Any, float]]] = [[] for _ in limits]
    for layer in range(L):
        hot_us = problem.hot_us[kept, layer].astype(np.float64)
        cold_us = problem.cold_us[kept, layer].astype(np.float64)
        linear_us = np.stack([problem.linear_us[layer], *(limit.linear_us[layer] for limit in limits)])
        here = _expert_columns(linear_us, layer, (hot_us > 0).any(axis=0) | (cold_us > 0).any(axis=0))
        for limit, terms in zip(limits, limited, strict=True):
            terms += [(c.variable, float(limit.linear_us[layer, c.experts[0]])) for c in here]
        columns += here
        objective += [(c.variable, float(problem.linear_us[layer, c.experts[0]])) for c in here]
        bytes_used += [(c.variable, float(problem.expert_bytes[layer])) for c in here]
        members = [(c.variable, 1.0) for c in here]
        program += _at_least(members, float(problem.min_hot[layer])), f"min_hot_{layer}"
        program += _at_most(members, float(min(problem.max_hot[layer], E))), f"max_hot_{layer}"

        hot_member = cold_member = None
        if problem.hot_fixed_when is FixedCharge.ANY_MEMBER:
            hot_member = pulp.LpVariable(f"any_hot_{layer}", cat=pulp.LpBinary)
            for i, c in enumerate(here):
                size = len(c.experts)
                program += _at_least([(hot_member, size), (c.variable, -1.0)], 0.0), f"any_hot_{layer}_{i}"
        if problem.cold_fixed_when is FixedCharge.ANY_MEMBER:
            cold_member = pulp.LpVariable(f"any_cold_{layer}", cat=pulp.LpBinary)
            for i, c in enumerate(here):
                size = len(c.experts)
                program += _at_least([(cold_member, size), (c.variable, 1.0)], size), f"any_cold_{layer}_{i}"

        for row, step in enumerate(kept):
            time = pulp.LpVariable(f"t_{step}_{layer}", lowBound=float(problem.idle_us[step, layer]))
            objective.append((time, float(problem.weight[step])))
            for limit, terms in zip(limits, limited, strict=True):
                terms.append((time, float(limit.weight[step])))
            hot_terms, hot_base = _charge(
                program,
                f"hot_{step}_{layer}",
                problem.hot_fixed_when,
                float(problem.hot_fixed_us[step, layer]),
                hot_member,
                [(c.variable, -1.0, 0.0) for c in here if hot_us[row, c.experts[0]] > 0],
            )
            cold_terms, cold_base = _charge(
                program,
                f"cold_{step}_{layer}",
                problem.cold_fixed_when,
                float(problem.cold_fixed_us[step, layer]),
                cold_member,
                [(c.variable, 1.0, 1.0) for c in here if cold_us[row, c.experts[0]] > 0],
            )
            hot_side = [
                (c.variable, -float(hot_us[row, c.experts[0]])) for c in here if hot_us[row, c.experts[0]] > 0
            ]
            cold_side = [
                (c.variable, float(cold_us[row, c.experts[0]]))
                for c in here
                if cold_us[row, c.experts[0]] > 0
            ]
            program += _at_least([(time, 1.0), *hot_side, *hot_terms], hot_base), f"hot_{step}_{layer}"
            total = cold_base + float(cold_us[row].sum())
            program += _at_least([(time, 1.0), *cold_side, *cold_terms], total), f"cold_{step}_{layer}"
            factor = 0.0 if problem.heaviest_factor is None else float(problem.heaviest_factor[step])
            # Up to a factor of 1 the sum is never shorter than its heaviest expert.
            for i, (variable, cost_us) in enumerate(cold_side if factor > 1 else ()):
                heavy = [(time, 1.0), (variable, factor * cost_us), *cold_terms]
                program += _at_least(heavy, cold_base + factor * cost_us), f"heaviest_{step}_{layer}_{i}"
    program += pulp.LpAffineExpression(objective)
    program += _at_most(bytes_used, float(problem.budget_bytes)), "budget"
    for number, (limit, terms) in enumerate(zip(limits, limited, strict=True)):
        program += _at_most(terms, limit.most_us), f"limit_{number}"
    return IlpModel(program, tuple(columns), (L, E))


def _expert_columns(linear_us: Floats, layer: int, active: NDArray[np.bool_]) -> list[ExpertColumn]:
    """Columns of a layer's experts; idle ones with the same ``linear_us`` (float [rows, E]) share one."""
    columns = [
        ExpertColumn(layer, np.array([e]), pulp.LpVariable(f"x_{layer}_{e}", cat=pulp.LpBinary))
        for e in np.flatnonzero(active)
    ]
    idle = np.flatnonzero(~active)
    for group, linear in enumerate(np.unique(linear_us[:, idle], axis=1).T):
        experts = idle[(linear_us[:, idle] == linear[:, None]).all(axis=0)]
        count = pulp.LpVariable(f"idle_{layer}_{group}", lowBound=0, upBound=len(experts), cat=pulp.LpInteger)
        columns.append(ExpertColumn(layer, experts, count))
    return columns


def _charge(
    program: Any,
    name: str,
    when: FixedCharge,
    charge_us: float,
    member: Any,
    active: list[tuple[Any, float, float]],
) -> tuple[list[tuple[Any, float]], float]:
    """What a side's charge adds to its row: terms and a constant. ``active`` are (x, sign, right side)."""
    if when is FixedCharge.ALWAYS:
        return [], charge_us
    if when is FixedCharge.ANY_MEMBER:
        return [(member, -charge_us)], 0.0
    if not active or charge_us == 0:
        return [], 0.0
    pays = pulp.LpVariable(f"pays_{name}", lowBound=0, upBound=1)
    for i, (variable, sign, right) in enumerate(active):
        program += _at_least([(pays, 1.0), (variable, sign)], right), f"pays_{name}_{i}"
    return [(pays, -charge_us)], 0.0


def _at_least(terms: list[tuple[Any, float]], right: float) -> Any:
    return pulp.LpConstraint(pulp.LpAffineExpression(terms), sense=pulp.LpConstraintGE, rhs=right)


def _at_most(terms: list[tuple[Any, float]], right: float) -> Any:
    return pulp.LpConstraint(pulp.LpAffineExpression(terms), sense=pulp.LpConstraintLE, rhs=right)
