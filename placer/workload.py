"""The traffic a plan is made for: clients, prompt and output lengths, latency targets."""

from dataclasses import dataclass

from placer.errors import BadInputError

MOST_CLIENTS = 10_000
"""Clients that a closed loop is simulated for."""


@dataclass(frozen=True)
class Workload:
    """Closed-loop traffic: ``concurrency`` clients, each sending its next request when the last one ends.

    Attributes
    ----------
    prompt_tokens, output_tokens
        Mean lengths P and O of a request.
    concurrency
        Clients; the server may run fewer requests at a time and let the rest queue.
    slo_tpot_ms, slo_ttft_ms
        Targets on the 95th percentile over requests, or None.
    """

    prompt_tokens: int
    output_tokens: int
    concurrency: int
    slo_tpot_ms: float | None = None
    slo_ttft_ms: float | None = None

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "output_tokens", "concurrency"):
            if getattr(self, name) < 1:
                flag = "--" + name.replace("_", "-")
                raise BadInputError(f"{flag} is {getattr(self, name)}", "give a whole number of at least 1")
        if self.concurrency > MOST_CLIENTS:
            raise BadInputError(
                f"--concurrency is {self.concurrency:,}: clients beyond {MOST_CLIENTS:,} only lengthen the queue",
                f"give at most {MOST_CLIENTS}",
            )
        if self.output_tokens < 2:
            raise BadInputError("--output-tokens is 1: TPOT is not defined", "give at least 2 output tokens")
        for name in ("slo_tpot_ms", "slo_ttft_ms"):
            target = getattr(self, name)
            if target is not None and not 0 < target < 1e9:
                flag = "--" + name.replace("_ms", "").replace("_", "-")
                raise BadInputError(f"{flag} is {target}", "give milliseconds above 0")

    @property
    def request_tokens(self) -> int:
        """KV tokens that one request holds at its end."""
        return self.prompt_tokens + self.output_tokens

    @property
    def mean_context_tokens(self) -> int:
        """Mean KV tokens of a request over its decode steps: P + O/2."""
        return self.prompt_tokens + self.output_tokens // 2
