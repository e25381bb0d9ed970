"""The traffic of placement.json: who sends requests, how long they are, and what was asked of them."""

from pydantic import Field

from placer.section import Section


class Targets(Section):
    """Latency targets on the 95th percentile over requests, in milliseconds; null is no target."""

    tpot_ms: float | None = Field(default=None, gt=0)
    ttft_ms: float | None = Field(default=None, gt=0)


class ArrivalsSection(Section):
    """Arrival times that were given, from the first to the last."""

    requests: int = Field(ge=1)
    span_s: float = Field(ge=0)


class PlannedWorkload(Section):
    """The traffic that was planned for.

    ``rate_per_s`` is of Poisson arrivals, ``arrivals`` of given times; without either, ``concurrency`` clients send
    one request after the other. ``prefix_hit`` is the share of prompt tokens found in the prefix cache,
    ``length_variation`` the standard deviation of lengths over their mean.
    """

    prompt_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    concurrency: int = Field(ge=1)
    slo: Targets = Targets()
    rate_per_s: float | None = Field(default=None, gt=0)
    arrivals: ArrivalsSection | None = None
    length_variation: float = Field(default=0.0, ge=0)
    prefix_hit: float = Field(default=0.0, ge=0, lt=1)


class RuntimeSection(Section):
    """What was assumed of the runtime beyond its defaults."""

    scheduler: str
    deferred_experts: int = Field(ge=0)
    skip_idle_cold: bool
