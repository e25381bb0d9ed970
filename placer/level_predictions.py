"""What several placements deliver at one level, on steps of every size that its server runs."""

from collections.abc import Collection, Mapping

from placer.level import Level
from placer.level_cost import LevelCosts
from placer.level_steps import LevelSteps
from placer.model.spec import ModelSpec
from placer.prediction import Prediction, predict_at_sizes
from placer.profiler.cost import CostModel
from placer.replays import Replays
from placer.solve_request import SolveRequest
from placer.solvers.problem import Mask


def level_predictions(
    model: ModelSpec,
    cost: CostModel,
    replays: Replays,
    costs: LevelCosts,
    level: Level,
    masks: Mapping[str, Mask],
    cold_shares: Mapping[str, float],
    request: SolveRequest,
    *,
    banded: Collection[str],
) -> dict[str, Prediction]:
    """Figures by name of ``masks`` (bool [L, E] each), those in ``banded`` with bands.

    Parameters
    ----------
    costs
        The level's own steps.
    replays
        The trace part that they come from, for steps of other sizes.
    cold_shares
        Share of its selections outside each mask.
    """
    workload, settings = request.workload, level.settings
    steps = LevelSteps(model, cost, replays, settings, workload, request.tp, masks, request.scheduler)
    steps.known(costs)
    return {
        name: predict_at_sizes(
            steps,
            name,
            costs,
            hot,
            cold_shares[name],
            settings,
            workload,
            request.seed,
            scheduler=request.scheduler,
            uncertainty=cost.uncertainty if name in banded else None,
        )
        for name, hot in masks.items()
    }
