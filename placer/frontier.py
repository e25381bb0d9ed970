"""The best plan for every number of running requests."""

from collections.abc import Callable
from dataclasses import dataclass

from placer.hbm import ServerSettings
from placer.level import Level
from placer.level_solution import LevelSolution
from placer.prediction import Prediction
from placer.solvers.problem import Mask


@dataclass(frozen=True)
class FrontierPoint:
    """The best plan for a number of running requests.

    ``objective_us`` is of the plan on the solving steps and ``bound_us`` bounds every plan at ``settings``
    from below; ``prediction`` is on the reporting requests.
    """

    settings: ServerSettings
    hot_experts: int
    objective_us: float
    bound_us: float
    prediction: Prediction


def frontier(
    chosen: LevelSolution,
    tried: list[LevelSolution],
    bounds: dict[ServerSettings, float],
    figures: Callable[[Level, Mask], Prediction],
) -> tuple[FrontierPoint, ...]:
    """The best level of every number of running requests; ``tried`` is sorted by objective.

    Latency targets may exclude the best level of the chosen number: there it is the chosen one.
    """
    best = {chosen.level.settings.max_running_requests: chosen}
    for entry in tried:
        best.setdefault(entry.level.settings.max_running_requests, entry)
    return tuple(
        FrontierPoint(
            settings=entry.level.settings,
            hot_experts=int(entry.hot.sum()),
            objective_us=entry.objective_us(),
            bound_us=bounds[entry.level.settings],
            prediction=figures(entry.level, entry.hot),
        )
        for _, entry in sorted(best.items())
    )
