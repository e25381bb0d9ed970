"""Whether a changed request can keep its latency targets: by the frequency ranking, or by a search at one level."""

from dataclasses import replace

from placer.choosing import Choosing
from placer.errors import BadInputError, InfeasibleError
from placer.hot_bounds import hot_bounds
from placer.level import Level
from placer.level_problems import LevelProblems
from placer.level_room import request_levels, roomy_levels
from placer.level_solution import LEVEL_GAP, LevelSolution, solve_level
from placer.model.spec import ModelSpec
from placer.prediction import Prediction
from placer.profiler.cost import CostModel
from placer.profiler.trace.mix import mixed
from placer.profiler.trace.selection import selection_counts
from placer.profiler.trace.split import split_requests
from placer.profiler.trace.trace import Trace
from placer.replays import EVALUATION_SEED, EVALUATION_STEPS, SPLIT_SHARES, Replays
from placer.solve_request import SolveRequest
from placer.target_search import TargetSearch
from placer.targets import excess

_NEAR = 1.1
"""Excess over the targets up to which another plan than the frequency ranking is searched for."""


class QuickCheck:
    """Tries changes of a request on the steps that a solve would choose by; what it finds, the solve tries too.

    The trace, its mix, the seed and where prompts come from stay as they are. What serves must keep the targets on the
    requests that an answer is reported on, too.
    """

    def __init__(self, model: ModelSpec, trace: Trace, cost: CostModel, request: SolveRequest) -> None:
        self._model, self._cost = model, replace(cost, behaviour=request.behaviour)
        parts = split_requests(trace, SPLIT_SHARES, seed=request.seed)
        self._solving, self._choosing, self._reporting = (
            mixed(part, request.mix, request.seed) for part in parts
        )
        self._counts = selection_counts(self._solving)
        seed, prefill_from = request.seed, request.prefill_from
        self._steps = Replays(self._solving, seed, prefill_from)
        self._choosing_steps, self._reporting_steps = (
            Replays(part, seed + number * EVALUATION_SEED, prefill_from, step_factor=EVALUATION_STEPS)
            for number, part in ((1, self._choosing), (2, self._reporting))
        )

    def __call__(self, request: SolveRequest) -> Prediction | None:
        """Figures of a plan that serves ``request``, simulated; None where none is found or nothing fits.

        Of the levels whose frequency ranking serves, the most promising for the request's objective.
        """
        # Bounds are of no use here.
        request = replace(request, gap=max(request.gap, LEVEL_GAP))
        try:
            limits = hot_bounds(self._model, request.pins, least=request.least_hot, most=request.most_hot)
            grid = roomy_levels(self._model, request_levels(self._model, request), limits, request)
        except (BadInputError, InfeasibleError):
            return None
        problems = LevelProblems(self._model, self._cost, request, limits, self._steps, self._counts)
        choosing = Choosing(self._model, self._cost, request, self._choosing_steps, self._choosing)
        reporting = Choosing(self._model, self._cost, request, self._reporting_steps, self._reporting)
        nearest: tuple[float, Level] | None = None
        for level in problems.promising_first(grid):
            frequency = problems.baseline("frequency", level)
            figures = choosing.figures(level, frequency)
            if choosing.serves(level, frequency) and reporting.serves(level, frequency):
                return figures
            far = excess(request.workload, figures)
            if nearest is None or far < nearest[0]:
                nearest = far, level
        if nearest is None or nearest[0] > _NEAR:
            return None
        level = nearest[1]
        problem = problems.problem(level)
        solution = solve_level(problem, request, LEVEL_GAP, problems.baseline("frequency", level))
        search = TargetSearch(problems, choosing, {}, set(), set(), lambda _text: None)
        best = search.best([LevelSolution(level, problem, solution)]) if solution.hot is not None else None
        if best is None or not reporting.serves(best.level, best.hot):
            return None
        return choosing.figures(best.level, best.hot)
