"""One memory level's placement problem as plain arrays, and its exact objective."""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Mask = NDArray[np.bool_]


class FixedCharge(StrEnum):
    """When a side of a layer-step pays its fixed cost; a property of the runtime, kept as data."""

    ALWAYS = "always"
    """Paid in every layer-step, whatever the placement."""
    ANY_MEMBER = "any_member"
    """Paid when the side holds at least one expert of the layer (sglang-kt skips an empty GPU part)."""
    ANY_ACTIVE = "any_active"
    """Paid when at least one expert of the side has rows in this layer-step (kt-kernel's call of its threads)."""


@dataclass(frozen=True)
class PlacementProblem:
    """Choose hot experts x[l, e] to minimise the weighted time of the steps.

    time[s, l] = max(hot_fixed + sum_e hot_us * x,
                     cold_fixed + max(sum_e cold_us * (1 - x), heaviest_factor * max_e cold_us * (1 - x)),
                     cold_idle)
    objective  = constant_us + sum_s weight[s] * sum_l time[s, l] + sum_le linear_us * x

    Attributes
    ----------
    hot_us, cold_us
        float [S, L, E], microseconds an expert adds to its side; 0 where it has no rows, never negative.
    hot_fixed_us, cold_fixed_us
        float [S, L], paid when the `FixedCharge` of the side says so. ``hot_fixed_us`` may be negative unless it
        is paid by ANY_ACTIVE: a cost that the cold side has in every layer-step is taken off both sides.
    weight
        float [S], non-negative; the objective is a weighted sum, so weights need not sum to one.
    expert_bytes
        int [L], bytes that one hot expert of the layer takes from the budget (positive).
    budget_bytes
        int, bytes that hot experts may take together.
    min_hot, max_hot
        int [L], bounds on the number of hot experts of each layer.
    linear_us
        float [L, E], added per hot expert; may have any sign (sampling correction, tie-break).
    cold_idle_us
        float [S, L], what the cold side takes even where its fixed cost is not paid (the runtime calls it
        all the same); never above ``cold_fixed_us``, so that it only shows in all-hot layers. None for 0.
    constant_us
        Part of the objective that no placement changes (base time); gaps are stated without it.
    heaviest_factor
        float [S], not negative, weight of the heaviest cold expert in the cost model's max-term, or None
        where the sum alone is the cold side's time (a factor up to 1 says the same).
    """

    hot_us: Floats
    cold_us: Floats
    hot_fixed_us: Floats
    cold_fixed_us: Floats
    hot_fixed_when: FixedCharge
    cold_fixed_when: FixedCharge
    weight: Floats
    expert_bytes: NDArray[np.int64]
    budget_bytes: int
    min_hot: NDArray[np.int64]
    max_hot: NDArray[np.int64]
    linear_us: Floats
    constant_us: float = 0.0
    name: str = field(default="", compare=False)
    cold_idle_us: Floats | None = None
    heaviest_factor: Floats | None = None

    def __post_init__(self) -> None:
        S, L, E = self.hot_us.shape
        expected = {
            "cold_us": (S, L, E),
            "hot_fixed_us": (S, L),
            "cold_fixed_us": (S, L),
            "weight": (S,),
            "expert_bytes": (L,),
            "min_hot": (L,),
            "max_hot": (L,),
            "linear_us": (L, E),
            **({} if self.heaviest_factor is None else {"heaviest_factor": (S,)}),
        }
        for name, shape in expected.items():
            found = getattr(self, name).shape
            if found != shape:
                raise ValueError(f"{name} has shape {found}, expected {shape}")
        if self.cold_idle_us is not None:
            if self.cold_idle_us.shape != (S, L):
                raise ValueError(f"cold_idle_us has shape {self.cold_idle_us.shape}, expected {(S, L)}")
            if self.cold_fixed_when is FixedCharge.ANY_ACTIVE:
                raise ValueError("cold_idle_us would show in mixed layers whose cold side has no rows")
            if np.any(self.cold_idle_us > self.cold_fixed_us) or np.any(self.cold_idle_us < 0):
                raise ValueError("cold_idle_us is below 0 or above cold_fixed_us")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(S, L, E): steps, MoE layers, experts per layer."""
        S, L, E = self.hot_us.shape
        return S, L, E

    @property
    def idle_us(self) -> Floats:
        """``cold_idle_us``, zeros where there is none: float [S, L]."""
        return np.zeros(self.cold_fixed_us.shape) if self.cold_idle_us is None else self.cold_idle_us

    def step_us(self, hot: Mask) -> NDArray[np.float64]:
        """Time of every layer-step under the placement ``hot`` (bool [L, E]): float [S, L]."""
        x = hot.astype(np.float64)
        hot_sum = np.einsum("sle,le->sl", self.hot_us, x)
        cold_sum = np.einsum("sle,le->sl", self.cold_us, 1.0 - x)
        if self.heaviest_factor is not None:
            cold_sum = np.maximum(cold_sum, self.heaviest_factor[:, None] * heaviest_us(self.cold_us, ~hot))
        hot_on = charged(self.hot_fixed_when, hot, self.hot_us)
        cold_on = charged(self.cold_fixed_when, ~hot, self.cold_us)
        hot_us = hot_sum + self.hot_fixed_us * hot_on
        cold_us = cold_sum + np.maximum(self.cold_fixed_us * cold_on, self.idle_us)
        return np.asarray(np.maximum(hot_us, cold_us))

    def objective_us(self, hot: Mask) -> float:
        """Exact objective of the placement ``hot`` (bool [L, E]), constant included."""
        steps = float(self.weight @ self.step_us(hot).sum(axis=1))
        return self.constant_us + steps + float(self.linear_us[hot].sum())

    def used_bytes(self, hot: Mask) -> int:
        """Bytes that the hot experts take."""
        return int(self.expert_bytes @ hot.sum(axis=1))

    def is_feasible(self, hot: Mask) -> bool:
        """Whether the placement keeps the budget and every layer's bounds."""
        per_layer = hot.sum(axis=1)
        within = bool(np.all(per_layer >= self.min_hot) and np.all(per_layer <= self.max_hot))
        return within and self.used_bytes(hot) <= self.budget_bytes


def heaviest_us(cost_us: Floats, members: Mask) -> Floats:
    """Largest cost among ``members`` (bool [..., E]) of every step: float [S, ...] from float [S, ..., E]."""
    return np.asarray(np.where(members[None], cost_us, 0.0).max(axis=-1, initial=0.0))


def charged(when: FixedCharge, members: Mask, cost_us: Floats) -> NDArray[np.float64]:
    """Whether a side pays its fixed cost: float [S, L] of 0 or 1.

    ``members`` is bool [L, E], ``cost_us`` float [S, L, E] with 0 where an expert has no rows.
    """
    S, L, _ = cost_us.shape
    if when is FixedCharge.ALWAYS:
        return np.ones((S, L))
    if when is FixedCharge.ANY_MEMBER:
        return np.broadcast_to(np.asarray(members.any(axis=1), dtype=np.float64), (S, L))
    return np.asarray(((cost_us > 0) & members[None]).any(axis=2), dtype=np.float64)
