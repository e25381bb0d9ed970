"""The traffic a plan is made for: who sends requests and when, their lengths, latency targets."""

import math
from dataclasses import dataclass
from itertools import pairwise

from placer.errors import BadInputError

MOST_CLIENTS = 10_000
"""Clients that a closed loop is simulated for."""
MOST_ARRIVALS = 10_000
"""Arrival times that one simulation plays."""
MOST_SPAN_S = 7 * 86_400
"""Longest time from the first of given arrivals to the last: times that span more are hardly seconds."""
MOST_VARIATION = 4.0
LEAST_RATE, MOST_RATE = 1e-6, 1e6
"""Requests per second that are simulated: times of rarer ones would be too long for a clock in microseconds."""
LONGEST_QUANTILE = 3.09
"""Standard deviations (of the logarithm) at which varying lengths are cut: one request in a thousand is longer."""


@dataclass(frozen=True)
class Workload:
    """Traffic: a closed loop of clients, or an open loop of requests that arrive by themselves.

    Attributes
    ----------
    prompt_tokens, output_tokens
        Mean lengths P and O of a request.
    concurrency
        Clients of a closed loop, each sending its next request when the last one ends; the server may run fewer
        requests at a time and let the rest queue. In an open loop, the most requests to run at a time.
    slo_tpot_ms, slo_ttft_ms
        Targets on the 95th percentile over requests, or None.
    rate_per_s
        Requests per second of an open loop with Poisson arrivals, or None.
    arrivals_s
        Ascending times of an open loop, in seconds, or None.
    length_variation
        Coefficient of variation of both lengths (log-normal); 0 for equal requests.
    request_lengths
        Prompt and output tokens of each of ``arrivals_s``, or None where all are as the means and variation say.
    prefix_hit
        Share of the prompt tokens that the server finds in its prefix cache.
    """

    prompt_tokens: int
    output_tokens: int
    concurrency: int
    slo_tpot_ms: float | None = None
    slo_ttft_ms: float | None = None
    rate_per_s: float | None = None
    arrivals_s: tuple[float, ...] | None = None
    length_variation: float = 0.0
    request_lengths: tuple[tuple[int, int], ...] | None = None
    prefix_hit: float = 0.0

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
        if not 0 <= self.length_variation <= MOST_VARIATION:
            raise BadInputError(
                f"--length-variation is {self.length_variation:g}",
                f"give standard deviation over mean, between 0 and {MOST_VARIATION:g}",
            )
        if not 0 <= self.prefix_hit < 1:
            raise BadInputError(
                f"--prefix-hit is {self.prefix_hit:g}",
                "give the share of prompt tokens found in the cache, from 0 to below 1",
            )
        self._check_arrivals()

    def _check_arrivals(self) -> None:
        if self.rate_per_s is not None and self.arrivals_s is not None:
            raise BadInputError("--rate and --arrivals exclude each other", "give one of the two")
        if self.rate_per_s is not None and not LEAST_RATE <= self.rate_per_s <= MOST_RATE:
            raise BadInputError(
                f"--rate is {self.rate_per_s:g}",
                f"give requests per second above 0: {LEAST_RATE:f} to {MOST_RATE:.0f}",
            )
        if self.arrivals_s is None:
            if self.request_lengths is not None:
                raise ValueError("request_lengths belong to arrivals_s")
            return
        if not 1 <= len(self.arrivals_s) <= MOST_ARRIVALS:
            raise BadInputError(
                f"--arrivals holds {len(self.arrivals_s):,} requests",
                f"give between 1 and {MOST_ARRIVALS:,}: the part of the day that matters",
            )
        if not all(math.isfinite(time) for time in self.arrivals_s) or any(
            after < before for before, after in pairwise(self.arrivals_s)
        ):
            raise BadInputError("--arrivals: times do not ascend", "sort the requests by arrival time")
        span_s = self.arrivals_s[-1] - self.arrivals_s[0]
        if span_s > MOST_SPAN_S:
            raise BadInputError(
                f"--arrivals: the requests span {span_s:,.10g} s", f"give seconds, {MOST_SPAN_S:,} at most"
            )
        if self.request_lengths is not None and len(self.request_lengths) != len(self.arrivals_s):
            raise ValueError("request_lengths must be as many as arrivals_s")

    @property
    def is_open_loop(self) -> bool:
        """Whether requests arrive by themselves, however far behind the server is."""
        return self.rate_per_s is not None or self.arrivals_s is not None

    @property
    def arrivals_span_s(self) -> float | None:
        """Seconds from the first of given arrivals to the last; None where no times are given."""
        return None if self.arrivals_s is None else self.arrivals_s[-1] - self.arrivals_s[0]

    @property
    def arrival_rate_per_s(self) -> float | None:
        """Requests per second of an open loop; None in a closed one, and where all arrive at one moment."""
        if self.arrivals_s is None:
            return self.rate_per_s
        span_s = self.arrivals_span_s or 0.0
        # Within a microsecond is one moment.
        return (len(self.arrivals_s) - 1) / span_s if span_s >= 1e-6 else None

    @property
    def request_tokens(self) -> int:
        """KV tokens that a request of mean lengths holds at its end."""
        return self.prompt_tokens + self.output_tokens

    @property
    def mean_context_tokens(self) -> int:
        """Mean KV tokens of a request over its decode steps: P + O/2."""
        return self.prompt_tokens + self.output_tokens // 2

    @property
    def computed_prompt_tokens(self) -> int:
        """Mean prompt tokens that are prefilled: those that the prefix cache lacks, at least one."""
        return self.prompt_tokens - self.cached_tokens(self.prompt_tokens)

    def cached_tokens(self, prompt_tokens: int) -> int:
        """Tokens of a prompt that the prefix cache holds; the last one is always computed."""
        return min(int(self.prefix_hit * prompt_tokens), prompt_tokens - 1)

    def check_context(self, most_tokens: int) -> None:
        """Raise BadInputError when the longest request is longer than a model's context of ``most_tokens``."""
        longest = self.longest_request_tokens
        if longest <= most_tokens:
            return
        if self.request_lengths is not None:
            cure = "leave longer requests out of --arrivals"
        elif longest > self.request_tokens:
            cure = "lower --length-variation, --prompt-tokens or --output-tokens"
        else:
            cure = "lower --prompt-tokens or --output-tokens"
        varied = (
            f" (the longest of {self.request_tokens:,} on average with --length-variation {self.length_variation:g})"
            if self.request_lengths is None and longest > self.request_tokens
            else ""
        )
        raise BadInputError(
            f"a request of {longest:,} tokens{varied} exceeds the model's context of {most_tokens:,}", cure
        )

    @property
    def length_options(self) -> str:
        """The options that say how long a mean request is."""
        if self.request_lengths is None:
            return "--prompt-tokens and --output-tokens"
        return "mean prompt and output tokens in --arrivals"

    @property
    def longest_request_tokens(self) -> int:
        """KV tokens that the longest request holds at its end: each length is cut at `LONGEST_QUANTILE`."""
        if self.request_lengths is not None:
            return max(prompt + output for prompt, output in self.request_lengths)
        return self.longest(self.prompt_tokens) + self.longest(self.output_tokens)

    def longest(self, mean_tokens: int) -> int:
        """Tokens at which log-normal lengths of this mean are cut."""
        sigma = math.sqrt(math.log1p(self.length_variation**2))
        return max(mean_tokens, round(mean_tokens * math.exp(LONGEST_QUANTILE * sigma - sigma**2 / 2)))
