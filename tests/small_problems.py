"""Small placement problems: a builder for hand-made ones, a strategy for random ones, and the true optimum."""

from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st

from placer.solvers.problem import FixedCharge, Mask, PlacementProblem


def problem(hot_us: Any, cold_us: Any, budget_bytes: int, **changes: Any) -> PlacementProblem:
    """A problem from [S][L][E] costs; nothing fixed, bytes 1, no layer bounds unless ``changes`` say so."""
    hot = np.asarray(hot_us, dtype=np.float64)
    S, L, E = hot.shape
    fields: dict[str, Any] = {
        "hot_us": hot,
        "cold_us": np.asarray(cold_us, dtype=np.float64),
        "hot_fixed_us": np.zeros((S, L)),
        "cold_fixed_us": np.zeros((S, L)),
        "hot_fixed_when": FixedCharge.ALWAYS,
        "cold_fixed_when": FixedCharge.ALWAYS,
        "weight": np.full(S, 1.0 / S),
        "expert_bytes": np.ones(L, dtype=np.int64),
        "budget_bytes": budget_bytes,
        "min_hot": np.zeros(L, dtype=np.int64),
        "max_hot": np.full(L, E, dtype=np.int64),
        "linear_us": np.zeros((L, E)),
    }
    return PlacementProblem(**{**fields, **changes})


def optimum_us(case: PlacementProblem) -> float | None:
    """The least objective over every feasible placement, by trying all; None where there is none."""
    _, L, E = case.shape
    masks = (np.array(bits).reshape(L, E) for bits in product((False, True), repeat=L * E))
    feasible = [case.objective_us(mask) for mask in masks if case.is_feasible(mask)]
    return min(feasible, default=None)


def everything_cold(case: PlacementProblem) -> Mask:
    """bool [L, E], all False."""
    _, L, E = case.shape
    return np.zeros((L, E), dtype=bool)


@st.composite
def problems(draw: st.DrawFn) -> PlacementProblem:
    """At most ten experts over at most three layers, with every kind of charge, idle cost, max-term, size and bound."""
    L, E = draw(st.sampled_from([(1, 2), (1, 6), (2, 3), (2, 5), (3, 3)]))
    S = draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    active = random.random((S, L, E)) < draw(st.sampled_from([0.3, 0.7, 1.0]))
    expert_bytes = random.integers(1, 4, size=L) if draw(st.booleans()) else np.ones(L, dtype=np.int64)
    min_hot = random.integers(0, 2, size=L) if draw(st.booleans()) else np.zeros(L, dtype=np.int64)
    max_hot = random.integers(1, E + 1, size=L) if draw(st.booleans()) else np.full(L, E, dtype=np.int64)
    linear = random.uniform(-30, 30, size=(L, E)) if draw(st.booleans()) else np.zeros((L, E))
    charges = st.sampled_from(list(FixedCharge))
    hot_when, cold_when, cold_fixed = draw(charges), draw(charges), random.uniform(0, 80, size=(S, L))
    least_fixed = -40.0 if hot_when is not FixedCharge.ANY_ACTIVE and draw(st.booleans()) else 0.0
    idles = draw(st.booleans()) and cold_when is not FixedCharge.ANY_ACTIVE
    return problem(
        np.where(active, random.uniform(1, 40, size=(S, L, E)), 0.0),
        np.where(active, random.uniform(10, 100, size=(S, L, E)), 0.0),
        int(random.integers(0, int(expert_bytes.sum()) * E + 1)),
        hot_fixed_us=random.uniform(least_fixed, 50, size=(S, L)),
        cold_fixed_us=cold_fixed,
        hot_fixed_when=hot_when,
        cold_fixed_when=cold_when,
        cold_idle_us=cold_fixed * random.uniform(0, 1, size=(S, L)) if idles else None,
        weight=random.uniform(0.1, 1.0, size=S),
        expert_bytes=expert_bytes.astype(np.int64),
        min_hot=min_hot.astype(np.int64),
        max_hot=max_hot.astype(np.int64),
        linear_us=linear,
        heaviest_factor=draw(st.sampled_from([None, 2.5 * random.random(size=S), np.full(S, 3.0)])),
        constant_us=draw(st.sampled_from([0.0, 500.0])),
    )
