"""A benchmark instance: rows of sampled steps and cost lines, for one memory level or several."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.solvers.problem import FixedCharge, PlacementProblem


@dataclass(frozen=True, eq=False)
class InstanceLevel:
    """One memory level: an expert with n > 0 rows costs a + b·n microseconds on its side.

    Attributes
    ----------
    rows
        int [S, L, E], rows of each expert in each step.
    cold_us, hot_us
        float [S, L, 2], the lines (a, b) of either side.
    c0_us, h0_us
        float [S, L], what the cold and the hot side pay when ``cold_charge`` and ``hot_charge`` say so.
    weight
        float [S], of each step in the objective.
    expert_bytes, budget_bytes
        int [L], what a hot expert takes of the budget, and int.
    min_hot, max_hot
        int [L], bounds on each layer's number of hot experts.
    constant_us
        What the level costs beside its steps.
    """

    rows: NDArray[np.integer[Any]]
    cold_us: NDArray[np.float64]
    hot_us: NDArray[np.float64]
    c0_us: NDArray[np.float64]
    h0_us: NDArray[np.float64]
    cold_charge: FixedCharge
    hot_charge: FixedCharge
    weight: NDArray[np.float64]
    expert_bytes: NDArray[np.int64]
    budget_bytes: int
    min_hot: NDArray[np.int64]
    max_hot: NDArray[np.int64]
    constant_us: float

    def problem(self, name: str) -> PlacementProblem:
        """The level as a placement problem."""
        active = self.rows > 0
        hot, cold = (
            np.where(active, line[:, :, :1] + line[:, :, 1:] * self.rows, 0.0)
            for line in (self.hot_us, self.cold_us)
        )
        _, L, E = self.rows.shape
        return PlacementProblem(
            hot_us=hot,
            cold_us=cold,
            hot_fixed_us=self.h0_us,
            cold_fixed_us=self.c0_us,
            hot_fixed_when=self.hot_charge,
            cold_fixed_when=self.cold_charge,
            weight=self.weight,
            expert_bytes=self.expert_bytes,
            budget_bytes=self.budget_bytes,
            min_hot=self.min_hot,
            max_hot=self.max_hot,
            linear_us=np.zeros((L, E)),
            constant_us=self.constant_us,
            name=name,
        )


@dataclass(frozen=True, eq=False)
class Instance:
    """A choice of one of ``levels`` and of hot experts in it."""

    name: str
    levels: tuple[InstanceLevel, ...]

    def problems(self) -> tuple[PlacementProblem, ...]:
        """One placement problem for each level."""
        return tuple(level.problem(self.name) for level in self.levels)

    @cached_property
    def sha256(self) -> str:
        """What the instance says, whatever its name and however it is stored: its key among records."""
        digest = hashlib.sha256(b"placer.instance/1")
        for level in self.levels:
            digest.update(f"{level.rows.shape} {level.cold_charge} {level.hot_charge}".encode())
            for counts in (level.rows, level.expert_bytes, level.budget_bytes, level.min_hot, level.max_hot):
                digest.update(np.ascontiguousarray(counts, dtype="<i8").tobytes())
            for numbers in (
                level.cold_us,
                level.hot_us,
                level.c0_us,
                level.h0_us,
                level.weight,
                level.constant_us,
            ):
                digest.update(np.ascontiguousarray(numbers, dtype="<f8").tobytes())
        return digest.hexdigest()
