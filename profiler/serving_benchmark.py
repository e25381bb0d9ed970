"""What a benchmark client measured of a running server."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from placer.errors import BadInputError
from placer.profiler.serving.server import Scheduler
from placer.units import counted, duration

MOST_REQUESTS = 200_000
_MOST_SPAN_S = 31 * 86_400
_MOST_OFF = 0.1
"""Share by which a stated figure may miss what the file's other figures make of it, as both clients compute it."""
_MOST_IN_FLIGHT = 50.0
"""Times that requests in flight, by their mean latency, may differ from those that the client kept there.

Wrong units differ a thousandfold; very different lengths, of which the file holds means, and the last request of a
run, tenfold.
"""
_AT_ONCE = 0.1
"""Share of a run after which a closed loop's clients have sent their first requests."""
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
        Of an open loop: requests per second on average; and when each answered request was sent, where the file
        says. None in a closed loop.
    burstiness
        Of an open loop: shape of the gamma distribution of the distances between requests; 1 is exponential,
        infinity even.
    input_tokens, output_tokens
        Of each answered request, in the order they were sent; equal shares of the totals unless ``detailed``.
    failed
        Requests that got no answer.
    failed_known
        Whether the file says how many those are; ``failed`` is 0 where it does not.
    output_tokens_per_s, mean_ttft_ms, mean_tpot_ms, median_itl_ms
        As the client states them; TPOT is per request, over the tokens after its first.
    server
        Arguments that an SGLang server reported, or None.
    lengths_option, arrivals_option
        The client's option that writes the lengths of single requests, and when they were sent; None where no
        option does.
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
    burstiness: float = 1.0
    lengths_option: str | None = None
    arrivals_option: str | None = None
    failed_known: bool = True

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
    burstiness: float | None = Field(default=1.0, gt=0)
    max_concurrency: int | None = Field(default=None, ge=1, le=MOST_REQUESTS)
    max_concurrent_requests: int | None = Field(default=None, ge=0)
    mean_ttft_ms: _Ms
    mean_tpot_ms: float = Field(ge=0, lt=1e9)
    median_itl_ms: float | None = Field(default=None, ge=0, lt=1e9)
    input_lens: tuple[_Tokens, ...] | None = None
    output_lens: tuple[_Tokens, ...] | None = None
    errors: tuple[str | None, ...] | None = None
    ttfts: tuple[float, ...] | None = None
    start_times: tuple[float, ...] | None = None

    lengths_option: ClassVar[str]
    arrivals_option: ClassVar[str | None]
    counts_failed: ClassVar[bool] = True

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
            When no request was answered, TPOT says nothing, figures contradict each other, arrivals are not
            known, or the server drafted.
        """
        if drafted:
            raise BadInputError(
                f"{name} is of a server that drafts tokens; predictions are without drafting",
                "run it again without speculative decoding",
            )
        self._check_answers(name)
        answered = self._answered(name)
        failed = max(failed, sum(bool(error) for error in self.errors or ()))
        sent = self.completed + failed
        clients = min(self.max_concurrency or sent, sent)
        rate_per_s, arrivals_s = self._arrivals(name, answered, clients)
        self._check_sums(name, answered)
        self._check_in_flight(name, clients, closed=rate_per_s is None)
        inputs, outputs = (
            _shares(total, self.completed)
            if lengths is None or answered is None
            else tuple(lengths[place] for place in answered)
            for total, lengths in (
                (self.total_input_tokens, self.input_lens),
                (self.total_output_tokens, self.output_lens),
            )
        )
        return ServingBenchmark(
            client=client,
            scheduler=scheduler,
            model=model,
            dataset=dataset,
            clients=clients,
            rate_per_s=rate_per_s,
            arrivals_s=arrivals_s,
            input_tokens=inputs,
            output_tokens=outputs,
            detailed=answered is not None,
            failed=failed,
            output_tokens_per_s=self.output_throughput,
            mean_ttft_ms=self.mean_ttft_ms,
            mean_tpot_ms=self.mean_tpot_ms,
            median_itl_ms=self.median_itl_ms or None,
            server=server,
            # The constant Infinity is read as None.
            burstiness=math.inf if self.burstiness is None else self.burstiness,
            lengths_option=self.lengths_option,
            arrivals_option=self.arrivals_option,
            failed_known=self.counts_failed or self.errors is not None,
        )

    @property
    def _duration_s(self) -> float:
        """Of the run, as its throughput has it."""
        return self.total_output_tokens / self.output_throughput

    def _check_answers(self, name: str) -> None:
        """Refuse a run whose answers say nothing of decode steps, or whose throughput is not that of its tokens."""
        if not self.completed:
            raise BadInputError(
                f"{name}: no request was answered", "look at what the client printed, and at the server's log"
            )
        if not self.total_input_tokens:
            raise BadInputError(
                f"{name} counts no input tokens: of conversations with several turns the client does not know them",
                "run it again with requests of one turn",
            )
        if self.total_output_tokens < 2 * self.completed:
            raise BadInputError(
                f"{name}: requests have fewer than 2 output tokens on average, so TPOT says nothing",
                "run it again with longer outputs",
            )
        if not self.mean_tpot_ms:
            raise BadInputError(
                f"{name}: TPOT is 0, so answers came in one piece",
                "run it again with streamed answers (without --disable-stream)",
            )
        if self.duration is not None:
            made = self.total_output_tokens / self.duration
            if abs(self.output_throughput / made - 1) > _MOST_OFF:
                raise BadInputError(
                    f"{name} states {self.output_throughput:,.1f} output tokens/s, but {self.total_output_tokens:,} in "
                    f"{self.duration:,.1f} s are {made:,.1f}",
                    "run the benchmark again: the file was changed",
                )

    def _answered(self, name: str) -> tuple[int, ...] | None:
        """Which of the requests that the file lists were answered; None where it lists none."""
        if self.input_lens is None or self.output_lens is None:
            return None
        of_each = {"output_lens": self.output_lens, "ttfts": self.ttfts, "start_times": self.start_times}
        for field, values in of_each.items():
            if values is not None and len(values) != len(self.input_lens):
                raise BadInputError(
                    f"{name} holds {len(self.input_lens)} input_lens and {len(values)} {field}",
                    "run the benchmark again: the file was changed",
                )
        # A request that failed has no output.
        pairs = enumerate(zip(self.input_lens, self.output_lens, strict=True))
        answered = tuple(place for place, pair in pairs if all(pair))
        if len(answered) != self.completed:
            raise BadInputError(
                f"{name} says that {self.completed} requests were answered, but has lengths of {len(answered)}",
                "run the benchmark again, with --ignore-eos where answers were empty",
            )
        return answered

    def _check_sums(self, name: str, answered: tuple[int, ...] | None) -> None:
        """Refuse totals and means that are not those of the requests that the file lists."""
        if answered is None:
            return
        for what, stated, values in (
            ("input tokens", self.total_input_tokens, self.input_lens),
            ("output tokens", self.total_output_tokens, self.output_lens),
            ("ms of TTFT", self.mean_ttft_ms * self.completed, _times_ms(self.ttfts)),
        ):
            if values is None:
                continue
            found = sum(values[place] for place in answered)
            if abs(found / stated - 1) > _MOST_OFF:
                raise BadInputError(
                    f"{name} states {stated:,.0f} {what} in all, but its requests have {found:,.0f}",
                    "run the benchmark again: the file was changed",
                )

    def _check_in_flight(self, name: str, clients: int, *, closed: bool) -> None:
        """Refuse latencies by which far more or far fewer requests were in flight than ``clients`` keep there.

        Requests in flight on average are their number times their mean latency over the duration. In an open
        loop a server may be idle.
        """
        tokens = self.total_output_tokens / self.completed
        latency_s = (self.mean_ttft_ms + self.mean_tpot_ms * (tokens - 1)) / 1e3
        in_flight = self.completed * latency_s / self._duration_s
        if in_flight > _MOST_IN_FLIGHT * clients or (closed and in_flight * _MOST_IN_FLIGHT < clients):
            raise BadInputError(
                f"{name}: by its TTFT and TPOT a request takes {duration(latency_s * 1e6)}, so "
                f"{in_flight:,.3g} of the {counted(self.completed, 'request')} in {duration(self._duration_s * 1e6)} "
                f"were in flight at a time, not {clients:,}",
                "run the benchmark again: the file was changed, or its times are not in milliseconds",
            )

    def _arrivals(
        self, name: str, answered: tuple[int, ...] | None, clients: int
    ) -> tuple[float | None, tuple[float, ...] | None]:
        """Rate of an open loop and, where the file says, when each answered request was sent; (None, None) in a closed.

        Requests that carry their own times are sent at them, whatever the rate that the file states.
        """
        rate = self.request_rate
        # A rate without limit is "inf", or the constant Infinity, which is read as None.
        unlimited = rate in (None, "inf")
        sent_s = self._sent_s(name, answered)
        if sent_s is not None:
            started_s = sorted(sent_s)[min(clients, len(sent_s)) - 1]
            if unlimited and started_s <= _AT_ONCE * self._duration_s:
                return None, None
            stated = rate if isinstance(rate, float) and rate > 0 else None
            return stated or len(sent_s) / (max(sent_s) or self._duration_s), sent_s
        or_written = f", or with {self.arrivals_option}" if self.arrivals_option else ""
        if unlimited:
            most = self.max_concurrent_requests
            if most is not None and 2 * most < min(clients, self.completed):
                raise BadInputError(
                    f"{name} sent requests at times of their own (at most {most:,} were in flight, not {clients:,}): "
                    "when they arrived is not known",
                    f"run it again with requests that carry no times{or_written}",
                )
            return None, None
        if not isinstance(rate, float) or rate <= 0:
            raise BadInputError(
                f"{name} sent requests at a changing rate ({rate}): when they arrived is not known",
                f"run it again with a number as --request-rate, or with --max-concurrency N alone{or_written}",
            )
        if self.max_concurrency is not None:
            raise BadInputError(
                f"{name} sent requests at a rate ({rate:g} per second) but held some back (--max-concurrency): when "
                "they arrived is not known",
                f"run it again with one of the two{or_written}",
            )
        return rate, None

    def _sent_s(self, name: str, answered: tuple[int, ...] | None) -> tuple[float, ...] | None:
        """When each answered request was sent, from the first on; None where the file does not say."""
        times_s = self.start_times
        if times_s is None or not times_s or (answered is None and len(times_s) != self.completed):
            return None
        if answered is not None:
            times_s = tuple(times_s[place] for place in answered)
        first_s = min(times_s)
        span_s = max(times_s) - first_s
        if not span_s <= _MOST_SPAN_S:
            raise BadInputError(
                f"{name}: start_times span {span_s:,.10g} s, more than {_MOST_SPAN_S // 86_400} days",
                "run the benchmark again: its times are seconds",
            )
        return tuple(time_s - first_s for time_s in times_s)


def _times_ms(times_s: tuple[float, ...] | None) -> tuple[float, ...] | None:
    return None if times_s is None else tuple(time_s * 1e3 for time_s in times_s)


def _shares(total: int, parts: int) -> tuple[int, ...]:
    """``total`` in ``parts`` numbers that differ by one at most."""
    return tuple(total * (part + 1) // parts - total * part // parts for part in range(parts))
