"""The sections of placement.json on sampling error: steps, gains over requests, a mix, the worst domain."""

from itertools import pairwise
from typing import Literal, Self

from pydantic import Field, model_validator

from placer.section import Section


class GainSection(Section):
    """A baseline's time per output token over the plan's, less 1, and its 95 % interval over requests.

    ``distinct`` says whether the interval excludes zero: otherwise the gain (or loss) is said to be none.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    distinct: bool | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if (self.low is None) != (self.high is None) or (self.low is None) != (self.distinct is None):
            raise ValueError("low, high and distinct: give all three or none")
        if self.low is None or self.high is None:
            return self
        if self.low > self.high:
            raise ValueError(f"low: {self.low:g} is more than high {self.high:g}")
        if self.distinct != (not self.low <= 0.0 <= self.high):
            raise ValueError(
                f"distinct: is {self.distinct}, but low {self.low:g} and high {self.high:g} say else"
            )
        return self


class StepsSection(Section):
    """Numbers of decode steps that the level was solved on, and each plan's time on the choosing requests."""

    decode_steps: tuple[int, ...] = Field(min_length=1)
    choosing_us: tuple[float, ...]
    used: int = Field(ge=1)
    converged: bool

    @model_validator(mode="after")
    def _matching(self) -> Self:
        if len(self.choosing_us) != len(self.decode_steps):
            raise ValueError("choosing_us: has another length than decode_steps")
        if any(after <= before for before, after in pairwise(self.decode_steps)):
            raise ValueError("decode_steps: do not rise")
        if self.used not in self.decode_steps:
            raise ValueError(f"used: {self.used} is not one of decode_steps")
        return self


class HeldoutSection(Section):
    """How the plan does on requests it was not made from; ``chosen`` is "plan" or the baseline returned.

    ``gains`` maps a baseline to what the plan gains over it on ``requests`` reported requests; ``steps`` says on how
    many steps it was solved.
    """

    coverage: float | None = Field(ge=0, le=1)
    uniform_null: float | None = Field(ge=0, le=1)
    verdict: str
    chosen: str = "plan"
    requests: int | None = Field(default=None, ge=1)
    gains: dict[str, GainSection] | None = None
    steps: StepsSection | None = None


class DomainSection(Section):
    """One domain on its reporting requests, in microseconds per output token; ``own_us`` is its own plan's."""

    plan_us: float = Field(gt=0)
    mix_us: float = Field(gt=0)
    frequency_us: float = Field(gt=0)
    own_us: float = Field(gt=0)
    regret: float


class RobustSection(Section):
    """A plan for the worst domain.

    ``value`` is the largest of the domains on the solving steps under the plan, and ``bound`` what no placement at
    these settings can go below: microseconds per output token (criterion time), or a factor over the plan made
    for each domain alone (regret). ``weights`` are the shares of the domains at which the bound was proven, found
    in so many ``rounds`` and ``seconds``.
    """

    criterion: Literal["time", "regret"]
    worst: str
    value: float = Field(gt=0)
    bound: float
    gap: float = Field(ge=0)
    weights: dict[str, float]
    domains: dict[str, DomainSection] = Field(min_length=1)
    left_out: dict[str, str] = Field(default_factory=dict)
    rounds: int | None = Field(default=None, ge=0)
    seconds: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _matching(self) -> Self:
        if self.worst not in self.domains:
            raise ValueError(f"worst: {self.worst!r:.60} is not one of domains")
        if set(self.weights) != set(self.domains):
            raise ValueError("weights: are not those of domains")
        if self.bound > self.value * (1 + 1e-9):
            raise ValueError(f"bound: {self.bound:g} is more than value {self.value:g}")
        return self
