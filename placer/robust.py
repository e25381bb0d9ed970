"""A plan for traffic whose domains come one at a time: the worst of them is made as good as can be."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from placer.errors import BadInputError
from placer.level_cost import LevelCosts
from placer.profiler.trace.heldout import LEAST_REQUESTS
from placer.profiler.trace.mix import named_domains
from placer.profiler.trace.trace import Trace
from placer.solvers.problem import Mask, PlacementProblem
from placer.solvers.solution import SolverStatus
from placer.solvers.structured import solve_structured
from placer.solvers.worst_case import WorstCase, solve_worst_case

_OWN_GAP = 0.01
"""Gap to which a domain's own plan, the measure of its regret, is solved."""


class Criterion(StrEnum):
    """What the worst domain is judged by."""

    TIME = "time"
    """Its time per output token."""
    REGRET = "regret"
    """Its time over that of a plan made for it alone, at the same settings and bytes."""


@dataclass(frozen=True)
class RobustSearch:
    """The search at one level, on the solving requests.

    Attributes
    ----------
    worst_case
        The plan with the values of its domains and the bound on the largest.
    own
        By domain: the plan made for it alone (bool [L, E]).
    problems, scale
        What a domain's value is: the problem's objective over the scale.
    left_out
        Why a domain takes no part, by name.
    """

    criterion: Criterion
    worst_case: WorstCase
    own: Mapping[str, Mask]
    problems: Mapping[str, PlacementProblem]
    scale: Mapping[str, float]
    left_out: Mapping[str, str]

    def value(self, hot: Mask) -> float:
        """The largest value of a domain under ``hot``, on the solving steps."""
        return max(problem.objective_us(hot) / self.scale[name] for name, problem in self.problems.items())


@dataclass(frozen=True)
class DomainTimes:
    """One domain on its reporting requests: microseconds per output token.

    Attributes
    ----------
    plan_us, mix_us, frequency_us
        Under the returned placement, the plan for all domains together, and the frequency ranking.
    own_us
        Under the plan made for this domain alone.
    """

    plan_us: float
    mix_us: float
    frequency_us: float
    own_us: float

    @property
    def regret(self) -> float:
        """What the returned placement costs over the domain's own plan, as a share (negative: it is faster)."""
        return self.plan_us / self.own_us - 1.0


@dataclass(frozen=True)
class Robust:
    """What a solve for the worst domain answers.

    Attributes
    ----------
    value, bound
        Largest value of a domain under the returned placement on the solving steps, and what no placement at these
        settings can go below: microseconds per output token, or for regret the factor over each domain's own plan.
    weights
        Shares of the domains at which the bound was proven.
    domains
        Each domain on its reporting requests.
    """

    criterion: Criterion
    value: float
    bound: float
    rounds: int
    seconds: float
    weights: Mapping[str, float]
    domains: Mapping[str, DomainTimes]
    left_out: Mapping[str, str]

    @property
    def gap(self) -> float:
        """Share of the value that is not proven."""
        return max(0.0, self.value - self.bound) / self.value

    @property
    def worst(self) -> str:
        """The domain that is worst on its reporting requests by the criterion."""
        return max(
            self.domains,
            key=lambda name: (
                self.domains[name].plan_us if self.criterion is Criterion.TIME else self.domains[name].regret
            ),
        )


def robust_domains(trace: Trace, mix: Mapping[str, float]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The domains that take part, those of ``mix`` or all, and why others do not.

    Raises
    ------
    BadInputError
        When fewer than two domains have enough requests to solve on, choose by and report on.
    """
    held = named_domains(trace, "--robust")
    asked = mix or held
    left_out = {
        name: f"{held[name]} requests, fewer than {LEAST_REQUESTS}"
        for name in asked
        if held[name] < LEAST_REQUESTS
    }
    names = tuple(name for name in asked if name not in left_out)
    if len(names) < 2:
        raise BadInputError(
            f"--robust needs two domains of at least {LEAST_REQUESTS} requests, and the trace holds {len(names)}",
            "record more requests of each domain, or leave --robust out",
        )
    return names, left_out


def search_robust(
    problems: Mapping[str, PlacementProblem],
    criterion: Criterion,
    *,
    gap: float,
    time_limit_s: float,
    seed: int,
    warm_starts: Sequence[Mask],
    left_out: Mapping[str, str],
    progress: Callable[[str], None],
) -> RobustSearch:
    """Find a plan for the worst of the ``problems``, one per domain.

    Each domain's own plan is solved to 1 % within an equal part of ``time_limit_s``, the worst case to ``gap``
    within ``time_limit_s``.
    """
    own: dict[str, Mask] = {}
    for number, (name, problem) in enumerate(problems.items()):
        progress(f"domain {number + 1} of {len(problems)}")
        solution = solve_structured(
            problem,
            gap=_OWN_GAP,
            time_limit_s=time_limit_s / len(problems),
            seed=seed,
            warm_starts=warm_starts,
        )
        if solution.status is SolverStatus.INTERRUPTED or solution.hot is None:
            raise KeyboardInterrupt
        own[name] = solution.hot
    scale = {
        name: problem.objective_us(own[name]) if criterion is Criterion.REGRET else 1.0
        for name, problem in problems.items()
    }
    progress("the worst domain")
    found = solve_worst_case(
        problems,
        scale,
        gap=gap,
        time_limit_s=time_limit_s,
        seed=seed,
        warm_starts=[*own.values(), *warm_starts],
    )
    if found.interrupted:
        raise KeyboardInterrupt
    return RobustSearch(criterion, found, own, problems, scale, left_out)


def worst_us(search: RobustSearch, costs: Mapping[str, LevelCosts]) -> Callable[[Mask], float]:
    """What a placement's worst domain costs on other steps, ``costs`` by domain, by the search's criterion."""
    scale = {
        name: each.output_token_us(search.own[name]) if search.criterion is Criterion.REGRET else 1.0
        for name, each in costs.items()
    }
    return lambda hot: max(each.output_token_us(hot) / scale[name] for name, each in costs.items())


def robust_answer(
    search: RobustSearch, costs: Mapping[str, LevelCosts], hot: Mask, mix_plan: Mask, frequency: Mask
) -> Robust:
    """The answer for the returned placement ``hot``, on reported ``costs`` by domain."""
    found = search.worst_case
    return Robust(
        criterion=search.criterion,
        value=search.value(hot),
        bound=found.bound,
        rounds=found.rounds,
        seconds=found.seconds,
        weights=found.weights,
        domains={
            name: DomainTimes(
                plan_us=each.output_token_us(hot),
                mix_us=each.output_token_us(mix_plan),
                frequency_us=each.output_token_us(frequency),
                own_us=each.output_token_us(search.own[name]),
            )
            for name, each in costs.items()
        },
        left_out=search.left_out,
    )
