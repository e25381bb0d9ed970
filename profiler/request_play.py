"""A benchmark's requests played: which steps the server runs, and what a client would state of them."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placer.profiler.serving.server import Server
from placer.profiler.serving.simulation import simulate
from placer.profiler.serving.step_time import StepTimes, Times
from placer.profiler.serving.traffic import Traffic

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PlayFigures:
    """What a benchmark client would state."""

    mean_ttft_ms: float
    mean_tpot_ms: float
    output_tokens_per_s: float


@dataclass(frozen=True)
class RequestPlay:
    """N requests in M runs of equal steps, in the order in which the server runs them.

    In a closed loop the next request is sent when another one ends, so this order does not depend on how long
    any step takes.

    Attributes
    ----------
    prefill
        bool [M], steps with prompt tokens; the others are decode steps.
    size
        int [M], tokens of the step: of its prompts and of the requests that decode beside them, if any.
    count
        int [M], how many such steps follow each other.
    sent, first, end
        int [N], steps that have run when a request is sent, has its first token, has its last.
    output_tokens
        int [N]
    """

    prefill: NDArray[np.bool_]
    size: Ints
    count: Ints
    sent: Ints
    first: Ints
    end: Ints
    output_tokens: Ints

    def figures(
        self, decode_us: Callable[[Ints], Floats], prefill_us: Callable[[Ints], Floats]
    ) -> PlayFigures:
        """What a client measures where steps of a size take ``decode_us`` and ``prefill_us`` microseconds."""
        step_us = np.empty(len(self.size))
        step_us[self.prefill] = prefill_us(self.size[self.prefill])
        step_us[~self.prefill] = decode_us(self.size[~self.prefill])
        steps = np.concatenate([[0], np.cumsum(self.count)])
        clock_us = np.concatenate([[0.0], np.cumsum(step_us * self.count)])
        # Within a run of equal steps the clock advances evenly.
        sent, first, end = (np.interp(at, steps, clock_us) for at in (self.sent, self.first, self.end))
        several = self.output_tokens > 1
        tpot_us = (end - first)[several] / (self.output_tokens[several] - 1)
        return PlayFigures(
            mean_ttft_ms=float((first - sent).mean()) / 1e3,
            mean_tpot_ms=float(tpot_us.mean()) / 1e3,
            output_tokens_per_s=float(self.output_tokens.sum()) / float(clock_us[-1]) * 1e6,
        )


@dataclass(frozen=True)
class MeanStepTimes:
    """Every step takes the mean of its kind and size: ``decode`` and ``prefill`` give microseconds by size."""

    decode: Callable[[Ints], Floats]
    prefill: Callable[[Ints], Floats]

    def decode_us(self, requests: int, kv_tokens: int, steps: int) -> Times:
        """See `StepTimes`."""
        return np.full(steps, self.decode(np.array([requests]))[0])

    def prefill_us(self, requests: int, prompt_tokens: int, kv_tokens: int) -> float:
        """See `StepTimes`."""
        return float(self.prefill(np.array([requests + prompt_tokens]))[0])


@dataclass
class CountedSteps:
    """Keeps what was run; steps take what ``times`` say, or a microsecond each, so that the clock counts them.

    Attributes
    ----------
    prefill, size, count
        As in `RequestPlay`.
    """

    times: StepTimes | None = None
    prefill: list[bool] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)

    def decode_us(self, requests: int, kv_tokens: int, steps: int) -> Times:
        """See `StepTimes`."""
        self._add(False, requests, steps)
        return np.ones(steps) if self.times is None else self.times.decode_us(requests, kv_tokens, steps)

    def prefill_us(self, requests: int, prompt_tokens: int, kv_tokens: int) -> float:
        """See `StepTimes`."""
        self._add(True, requests + prompt_tokens, 1)
        return 1.0 if self.times is None else self.times.prefill_us(requests, prompt_tokens, kv_tokens)

    def _add(self, prefill: bool, size: int, count: int) -> None:
        self.prefill.append(prefill)
        self.size.append(size)
        self.count.append(count)


def play_requests(traffic: Traffic, server: Server) -> RequestPlay:
    """The steps that ``server`` runs for ``traffic`` in a closed loop.

    Raises
    ------
    BadInputError
        When a request can never be held by the KV pool.
    """
    if traffic.arrival_us is not None:
        raise ValueError("in an open loop the order of steps depends on their times")
    steps = CountedSteps()
    served = simulate(traffic, server, steps)
    return RequestPlay(
        prefill=np.array(steps.prefill),
        size=np.array(steps.size, dtype=np.int64),
        count=np.array(steps.count, dtype=np.int64),
        sent=served.arrival_us.astype(np.int64),
        first=served.first_token_us.astype(np.int64),
        end=served.finish_us.astype(np.int64),
        output_tokens=served.output_tokens,
    )
