"""What a solve makes as good as can be, and what it and the latency targets weigh of a level's step times."""

from dataclasses import dataclass
from enum import StrEnum

from placer.workload import Workload


class Objective(StrEnum):
    """What to make as good as can be."""

    THROUGHPUT = "throughput"
    """Output tokens per second of all requests: least time per output token."""
    LATENCY = "latency"
    """TPOT at the 95th percentile in the simulation; the program minimises its mean."""
    GOODPUT = "goodput"
    """Output tokens per second of requests that keep every target."""


UNITS = {
    Objective.THROUGHPUT: "output tokens/s",
    Objective.LATENCY: "ms TPOT at p95",
    Objective.GOODPUT: "output tokens/s of requests that keep the targets",
}
"""What each objective is stated in."""


@dataclass(frozen=True)
class Weighting:
    """Multiples of the two parts of an output token's time that are added up.

    ``decode`` is of a decode step's time over its R requests, ``prefill`` of a prompt's time over the O output tokens
    that it is followed by. One of each is the time per output token of all requests together.
    """

    decode: float
    prefill: float

    def __str__(self) -> str:
        return f"{self.decode:.4g} decode + {self.prefill:.4g} prefill"

    def over(self, other: "Weighting") -> float:
        """How many times ``other`` this is at least, whatever the step times."""
        pairs = ((self.decode, other.decode), (self.prefill, other.prefill))
        return min(mine / its for mine, its in pairs if its > 0)

    def plus(self, other: "Weighting", factor: float) -> "Weighting":
        """This and ``factor`` times ``other``."""
        return Weighting(self.decode + factor * other.decode, self.prefill + factor * other.prefill)


OUTPUT_TOKEN = Weighting(1.0, 1.0)


@dataclass(frozen=True)
class Limit:
    """A latency target as a linear limit on step times: a mean that every plan within the target stays below."""

    flag: str
    weighting: Weighting
    target_us: float


def mean_tpot(running: int) -> Weighting:
    """A request's mean time per output token, where R run: its decode step, and the prompts of the R - 1 others.

    While a request puts out its O tokens, each of the others ends once, and the prompt that takes its place stops
    decoding (SGLang's scheduler; vLLM's mixed steps take less than both apart).
    """
    return Weighting(float(running), float(running - 1))


def stopped_share(running: int, workload: Workload) -> float:
    """Of the times that R - 1 others' prompts stop a request in `mean_tpot`, how many are steps of their own.

    Others that end in the same one of its O decode steps are followed by prompts that may share a chunk, which stops it
    once.
    """
    steps, others = workload.output_tokens, running - 1
    return steps * (1.0 - (1.0 - 1.0 / steps) ** others) / others if others else 1.0


def weighed(objective: Objective, running: int) -> Weighting:
    """What the program minimises at a level of R running requests, in microseconds.

    Per output token of all requests together; for latency, per output token of one request. Goodput is bounded by
    throughput and searched among plans for it.
    """
    return mean_tpot(running) if objective is Objective.LATENCY else OUTPUT_TOKEN


def limits_of(workload: Workload, running: int, *, prompts_known: bool) -> tuple[Limit, ...]:
    """The targets of ``workload`` as limits on mean times at a level of R running requests.

    The mean TPOT must keep the TPOT target; a prompt's own time, without any queue, the TTFT target.
    """
    limits = []
    if workload.slo_tpot_ms is not None:
        limits.append(Limit("--slo-tpot", mean_tpot(running), workload.slo_tpot_ms * 1e3))
    if workload.slo_ttft_ms is not None and prompts_known:
        prompt = Weighting(0.0, float(workload.output_tokens))
        limits.append(Limit("--slo-ttft", prompt, workload.slo_ttft_ms * 1e3))
    return tuple(limits)
