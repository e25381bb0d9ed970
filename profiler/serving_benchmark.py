"""What a benchmark client measured of a running server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from placer.errors import BadInputError
from placer.profiler.serving.server import Scheduler

MOST_REQUESTS = 200_000
_MOST_SPAN_S = 31 * 86_400
_MOST_OFF = 0.1
"""Share by which a stated throughput may miss tokens over duration, from which both clients compute it."""
MOST_TOKENS = 10**8
"""Tokens of one request that no server takes: more is a mistake in the file."""


@dataclass(frozen=True)
class ServingBenchmark:
    """One run of a benchmark client: in a closed loop, where a request is sent when another one ends, or at a rate.

    Attributes
    ----------
    client
        Which program wrote it.
    scheduler
        Whose server the client was written for, or was told that it measures; None where neither says.
    model
        What the client or the server calls the model, or None.
    dataset
        Where the prompts came from, or None.
    clients
        Requests that were in flight at most; all of them where the client set no limit.
    rate_per_s, arrivals_s
        Of an open loop: requests per second, at exponential distances; and when each answered request was sent,
        where the file says. None in a closed loop.
    input_tokens, output_tokens
        Of each answered request, in the order they were sent; equal shares of the totals unless ``detailed``.
    failed
        Requests that got no answer.
    output_tokens_per_s, mean_ttft_ms, mean_tpot_ms, median_itl_ms
        As the client states them; TPOT is per request, over the tokens after its first.
    server
        Arguments that an SGLang server reported, or None.
    """

    client: str
    scheduler: Scheduler | None
    model: str | None
    dataset: str | None
    clients: int
    rate_per_s: float | None
    arrivals_s: tuple[float, ...] | None
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    detailed: bool
    failed: int
    output_tokens_per_s: float
    mean_ttft_ms: float
    mean_tpot_ms: float
    median_itl_ms: float | None
    server: Mapping[str, Any] | None

    @property
    def requests(self) -> int:
        """Requests that were answered."""
        return len(self.input_tokens)


_Ms = Annotated[float, Field(gt=0, lt=1e9)]
_Tokens = Annotated[int, Field(ge=0, le=MOST_TOKENS)]


class ClientResult(BaseModel):
    """What both clients write under the same names; NaN and infinity are no measurements."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False, protected_namespaces=())

    completed: int = Field(ge=0, le=MOST_REQUESTS)
    total_input_tokens: int = Field(ge=0, le=MOST_TOKENS * MOST_REQUESTS)
    total_output_tokens: int = Field(ge=0, le=MOST_TOKENS * MOST_REQUESTS)
    output_throughput: float = Field(gt=0, lt=1e12)
    duration: float | None = Field(default=None, gt=0, lt=1e12)
    request_rate: float | str | None = None
    max_concurrency: int | None = Field(default=None, ge=1, le=MOST_REQUESTS)
    mean_ttft_ms: _Ms
    mean_tpot_ms: _Ms
    median_itl_ms: float | None = Field(default=None, ge=0, lt=1e9)
    input_lens: tuple[_Tokens, ...] | None = None
    output_lens: tuple[_Tokens, ...] | None = None
    errors: tuple[str | None, ...] | None = None
    start_times: tuple[float, ...] | None = None

    def benchmark(
        self,
        name: str,
        *,
        client: str,
        scheduler: Scheduler | None,
        model: str | None,
        dataset: str | None,
        failed: int,
        drafted: bool,
        server: Mapping[str, Any] | None,
    ) -> ServingBenchmark:
        """The run, ``name`` being what errors call it; ``drafted`` says that the server drafted tokens.

        Raises
        ------
        BadInputError
            When no request was answered, TPOT says nothing, throughput contradicts tokens and duration, arrivals
            are not known, or the server drafted.
        """
        if drafted:
            raise BadInputError(
                f"{name} is of a server that drafts tokens; predictions are without drafting",
                "run it again without speculative decoding",
            )
        if not self.completed or not self.total_input_tokens:
            raise BadInputError(
                f"{name}: no request was answered", "look at what the client printed, and at the server's log"
            )
        if self.total_output_tokens < 2 * self.completed:
            raise BadInputError(
                f"{name}: requests have fewer than 2 output tokens on average, so TPOT says nothing",
                "run it again with longer outputs",
            )
        if self.duration is not None:
            counted = self.total_output_tokens / self.duration
            if abs(self.output_throughput / counted - 1) > _MOST_OFF:
                raise BadInputError(
                    f"{name} states {self.output_throughput:,.1f} output tokens/s, but {self.total_output_tokens:,} in "
                    f"{self.duration:,.1f} s are {counted:,.1f}",
                    "run the benchmark again: the file was changed",
                )
        detailed, inputs, outputs = self._lengths(name)
        failed = max(failed, sum(bool(error) for error in self.errors or ()))
        sent = self.completed + failed
        rate_per_s, arrivals_s = self._arrivals(name)
        return ServingBenchmark(
            client=client,
            scheduler=scheduler,
            model=model,
            dataset=dataset,
            clients=min(self.max_concurrency or sent, sent),
            rate_per_s=rate_per_s,
            arrivals_s=arrivals_s,
            input_tokens=inputs,
            output_tokens=outputs,
            detailed=detailed,
            failed=failed,
            output_tokens_per_s=self.output_throughput,
            mean_ttft_ms=self.mean_ttft_ms,
            mean_tpot_ms=self.mean_tpot_ms,
            median_itl_ms=self.median_itl_ms or None,
            server=server,
        )

    def _arrivals(self, name: str) -> tuple[float | None, tuple[float, ...] | None]:
        """Rate of an open loop and, where every request was answered, when each was sent; (None, None) in a closed."""
        # A rate without limit is "inf", or the constant Infinity, which is read as None.
        rate = self.request_rate
        if rate in (None, "inf"):
            return None, None
        if not isinstance(rate, float) or rate <= 0:
            raise BadInputError(
                f"{name} sent requests at a changing rate ({rate}): when they arrived is not known",
                "run it again with a number as --request-rate, or with --max-concurrency N alone",
            )
        sent = self.start_times
        if sent is not None and len(sent) == self.completed:
            first_s = min(sent)
            span_s = max(sent) - first_s
            if not span_s <= _MOST_SPAN_S:
                raise BadInputError(
                    f"{name}: start_times span {span_s:,.10g} s, more than {_MOST_SPAN_S // 86_400} days",
                    "run the benchmark again: its times are seconds",
                )
            return rate, tuple(time - first_s for time in sent)
        if self.max_concurrency is not None:
            raise BadInputError(
                f"{name} sent requests at a rate ({rate:g} per second) but held some back (--max-concurrency): when "
                "they arrived is not known",
                "run it again with one of the two, or with --save-detailed",
            )
        return rate, None

    def _lengths(self, name: str) -> tuple[bool, tuple[int, ...], tuple[int, ...]]:
        """Whether lengths are each request's own; input and output tokens of the answered requests."""
        if self.input_lens is None or self.output_lens is None:
            return (
                False,
                _shares(self.total_input_tokens, self.completed),
                _shares(self.total_output_tokens, self.completed),
            )
        if len(self.input_lens) != len(self.output_lens):
            raise BadInputError(
                f"{name} holds {len(self.input_lens)} input_lens and {len(self.output_lens)} output_lens",
                "run the benchmark again: the file was changed",
            )
        # A request that failed has no output.
        pairs = [pair for pair in zip(self.input_lens, self.output_lens, strict=True) if all(pair)]
        if len(pairs) != self.completed:
            raise BadInputError(
                f"{name} says that {self.completed} requests were answered, but has lengths of {len(pairs)}",
                "run the benchmark again: the file was changed",
            )
        return True, tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


def _shares(total: int, parts: int) -> tuple[int, ...]:
    """``total`` in ``parts`` numbers that differ by one at most."""
    return tuple(total * (part + 1) // parts - total * part // parts for part in range(parts))
