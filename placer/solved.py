"""What a solve decides and what it is worth."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.convergence import Convergence
from placer.frontier import FrontierPoint
from placer.gain import Gains
from placer.level import Level
from placer.objective import Objective
from placer.prediction import Prediction
from placer.robust import Robust
from placer.sensitivity import Sensitivity
from placer.solvers.problem import Mask
from placer.whole_layers import WholeLayers


@dataclass(frozen=True)
class Solved:
    """The decision and what it is worth.

    Attributes
    ----------
    hot
        bool [L, E], the returned placement; ``chosen`` names it ("plan" or the baseline that won).
    priority
        float [L, E], expected microseconds per decode step that an expert costs when cold; orders hot lists.
    objective_us, bound_us, gap
        What the ``objective`` weighs of the returned placement's times on the solving steps, and a bound over all
        levels of the grid but the ``levels_missed`` of which no plan that was tried keeps the latency targets.
    prediction, baselines
        Figures on the reporting requests, same level and bytes.
    coverage
        Share of the reporting requests' selections that hot experts serve.
    sensitivity
        What every expert's place and the budget are worth at the placement; None without a trace.
    whole_layers
        What a decode step of the reporting requests pays for each layer all hot, and all cold.
    frontier
        One point per number of running requests, if it was asked for.
    held_out
        Whether the reporting requests are others than the solving ones; counts of one run can only be dealt out.
    convergence
        The numbers of steps that the level was solved on; None without a trace.
    gains
        What the placement gains over each baseline on the reporting requests; None without a trace.
    robust
        The worst domain, if the plan is made for it.
    """

    level: Level
    hot: Mask
    chosen: str
    priority: NDArray[np.float64]
    solver: str
    status: str
    objective_us: float | None
    bound_us: float | None
    gap: float | None
    seconds: float
    levels_solved: int
    levels_total: int
    prediction: Prediction
    baselines: dict[str, Prediction]
    baseline_masks: dict[str, Mask]
    coverage: float | None
    uniform_null: float
    extrapolated_share: float
    notes: tuple[str, ...]
    whole_layers: WholeLayers
    levels_missed: int = 0
    sensitivity: Sensitivity | None = None
    frontier: tuple[FrontierPoint, ...] = ()
    held_out: bool = True
    convergence: Convergence | None = None
    gains: Gains | None = None
    robust: Robust | None = None
    objective: Objective = Objective.THROUGHPUT
