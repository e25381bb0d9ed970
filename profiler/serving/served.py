"""Served requests: what clients saw, and how full the server was."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from placer.profiler.serving.course import Course

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """A figure over requests: mean and percentiles."""

    mean: float
    p50: float
    p95: float
    p99: float


def spread(values: Times) -> Spread:
    """Mean and percentiles of ``values`` (float [N], N > 0); percentiles lie on the line between neighbours."""
    p50, p95, p99 = np.percentile(values, (50, 95, 99)).tolist()
    return Spread(float(values.mean()), p50, p95, p99)


@dataclass(frozen=True)
class ServedRequests:
    """N requests, all finished.

    Attributes
    ----------
    arrival_us, admitted_us, first_token_us, finish_us
        float64 [N]; ``admitted_us`` is when a request first got a place.
    prompt_tokens, output_tokens, retractions
        int64 [N].
    """

    arrival_us: Times
    admitted_us: Times
    first_token_us: Times
    finish_us: Times
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    retractions: NDArray[np.int64]

    def part(self, counted: slice) -> "ServedRequests":
        """The ``counted`` ones of them."""
        return ServedRequests(*(getattr(self, field.name)[counted] for field in fields(ServedRequests)))

    def ttft_ms(self) -> Spread:
        """From arrival to the first token, queueing included."""
        return spread((self.first_token_us - self.arrival_us) / 1e3)

    def tpot_ms(self) -> Spread:
        """Per request, time after its first token over the tokens after it; of requests with two or more.

        Raises
        ------
        ValueError
            When no request has two output tokens.
        """
        several = self.output_tokens > 1
        if not several.any():
            raise ValueError("no request has two output tokens")
        after = (self.finish_us - self.first_token_us)[several]
        return spread(after / (self.output_tokens[several] - 1) / 1e3)

    def queue_ms(self) -> Spread:
        """From arrival to a place on the server."""
        return spread((self.admitted_us - self.arrival_us) / 1e3)

    def kept(self, *, ttft_ms: float | None = None, tpot_ms: float | None = None) -> NDArray[np.bool_]:
        """Which requests kept both targets (None: no target): bool [N]."""
        kept = np.ones(self.finish_us.size, dtype=bool)
        if ttft_ms is not None:
            kept &= (self.first_token_us - self.arrival_us) / 1e3 <= ttft_ms
        if tpot_ms is not None:
            after = (self.finish_us - self.first_token_us) / 1e3
            kept &= after <= tpot_ms * np.maximum(self.output_tokens - 1, 0)
        return kept


def joined(parts: Sequence[ServedRequests]) -> ServedRequests:
    """The requests of all ``parts``."""
    return ServedRequests(
        *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(ServedRequests))
    )


@dataclass(frozen=True)
class Served(ServedRequests):
    """A whole run of a server: its requests, and its steps.

    Attributes
    ----------
    decode_steps, prefill_steps
        Steps that only decoded, and steps with prompt tokens.
    prefilled_tokens
        Prompt tokens computed, those that retracted requests computed again included.
    decode_us, prefill_us
        Time spent in either kind of step.
    mean_kv_tokens, peak_kv_tokens
        KV tokens held, averaged over the whole run; and the most at any moment.
    course
        What was held and put out over time, for means over a part of the run.
    """

    decode_steps: int
    prefill_steps: int
    prefilled_tokens: int
    decode_us: float
    prefill_us: float
    mean_kv_tokens: float
    peak_kv_tokens: int
    course: Course

    @property
    def duration_us(self) -> float:
        """From the first arrival to the last finish."""
        return float(self.finish_us.max() - self.arrival_us.min())

    @property
    def output_tokens_per_s(self) -> float:
        """Of all requests together, over the whole run."""
        return float(self.output_tokens.sum()) / self.duration_us * 1e6

    @property
    def requests_per_s(self) -> float:
        """Requests finished, over the whole run."""
        return self.finish_us.size / self.duration_us * 1e6
