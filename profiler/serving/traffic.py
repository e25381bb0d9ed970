"""Traffic: the requests that a server is asked to serve, and when they arrive."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from placer.errors import BadInputError

Tokens = NDArray[np.int64]
_EVEN = 1e6
"""Burstiness above which distances between requests deviate from their mean by less than a thousandth."""


@dataclass(frozen=True)
class Traffic:
    """N requests in the order in which they are sent.

    Attributes
    ----------
    prompt_tokens, output_tokens
        int64 [N], at least 1 each.
    arrival_us
        float64 [N], ascending, of an open loop; None in a closed loop.
    clients
        Clients of a closed loop, each sending its next request when its last one ends; 0 in an open loop.
    cached_tokens
        int64 [N], tokens of each prompt that the server finds in its prefix cache, fewer than the prompt; None
        for no hits.
    client_us
        From a client's sending to the scheduler's knowing of a request: HTTP, tokenisation. It counts to the TTFT.
    """

    prompt_tokens: Tokens
    output_tokens: Tokens
    arrival_us: NDArray[np.float64] | None
    clients: int
    cached_tokens: Tokens | None = None
    client_us: float = 0.0

    def __post_init__(self) -> None:
        if self.prompt_tokens.shape != self.output_tokens.shape or self.prompt_tokens.ndim != 1:
            raise ValueError("prompt_tokens and output_tokens must be [N] each")
        if not self.requests:
            raise BadInputError("the traffic holds no requests", "give at least one request")
        if min(int(self.prompt_tokens.min()), int(self.output_tokens.min())) < 1:
            raise BadInputError(
                "a request has no prompt or no output tokens", "give lengths of at least 1 token"
            )
        cached = self.cached_tokens
        if cached is not None and (
            cached.shape != self.prompt_tokens.shape
            or (cached < 0).any()
            or (cached >= self.prompt_tokens).any()
        ):
            raise ValueError("cached_tokens must be [N], from 0 to less than the prompts")
        if (self.arrival_us is None) == (self.clients < 1):
            raise ValueError("traffic has either arrival times or clients")
        if self.arrival_us is not None and (
            self.arrival_us.shape != self.prompt_tokens.shape
            or not np.isfinite(self.arrival_us).all()
            or (np.diff(self.arrival_us) < 0).any()
        ):
            raise BadInputError(
                "arrival times are not ascending numbers", "sort the requests by arrival time"
            )

    @property
    def requests(self) -> int:
        """N."""
        return int(self.prompt_tokens.size)


def fixed_lengths(requests: int, prompt_tokens: int, output_tokens: int) -> tuple[Tokens, Tokens]:
    """Lengths of ``requests`` equal requests: int64 [N] of prompts, and of outputs."""
    return (
        np.full(requests, prompt_tokens, dtype=np.int64),
        np.full(requests, output_tokens, dtype=np.int64),
    )


def spread_lengths(
    requests: int,
    prompt_tokens: int,
    output_tokens: int,
    *,
    variation: float,
    seed: int,
    longest: Callable[[int], int] | None = None,
    blocks: int = 1,
) -> tuple[Tokens, Tokens]:
    """Log-normal lengths with the given means and coefficient of variation: int64 [N] twice.

    Log-normal with sigma² = ln(1 + variation²) and mu = ln(mean) - sigma²/2, so that the mean is kept. Each of the N
    equal shares of the distribution gives one length, its mean, in random order: N independent draws would differ from
    the distribution by variation / sqrt(N). Each of ``blocks`` equal parts of the requests holds one of every
    ``blocks`` neighbouring lengths, so that those that run at one time are alike, too. ``longest`` gives the most
    tokens by the mean.
    """
    random = np.random.default_rng(seed)
    sigma = np.sqrt(np.log1p(variation**2))
    # The mean between two quantiles of a log-normal is a difference of the normal distribution, shifted by sigma.
    below = ndtr(ndtri(np.arange(requests + 1) / requests) - sigma)
    of_mean = requests * np.diff(below)

    def draw(mean: int) -> Tokens:
        most = np.inf if longest is None else longest(mean)
        lengths = np.clip(np.rint(mean * of_mean), 1, most).astype(np.int64)
        # Neighbours are dealt out to the blocks, then each block is put in random order.
        dealt = random.permuted(lengths.reshape(-1, blocks), axis=1)
        return np.ascontiguousarray(random.permuted(dealt, axis=0).T).reshape(-1)

    return draw(prompt_tokens), draw(output_tokens)


def closed_loop(clients: int, prompt_tokens: Tokens, output_tokens: Tokens) -> Traffic:
    """``clients`` that send the requests in order, all their first ones at time 0."""
    return Traffic(prompt_tokens, output_tokens, None, clients)


def poisson(rate_per_s: float, prompt_tokens: Tokens, output_tokens: Tokens, *, seed: int) -> Traffic:
    """An open loop of Poisson arrivals: N requests at uniform times within N / ``rate_per_s`` seconds.

    That is how Poisson arrivals lie once their number is known; so the mean rate is the one asked for.

    Raises
    ------
    BadInputError
        When the rate is not above 0.
    """
    if not 0 < rate_per_s < float("inf"):
        raise BadInputError(f"the request rate is {rate_per_s}", "give requests per second above 0")
    requests = prompt_tokens.size
    times_us = np.random.default_rng(seed).uniform(0.0, requests / rate_per_s * 1e6, size=requests)
    return Traffic(prompt_tokens, output_tokens, np.sort(times_us), 0)


def gamma_spaced(
    rate_per_s: float, burstiness: float, prompt_tokens: Tokens, output_tokens: Tokens, *, seed: int
) -> Traffic:
    """An open loop whose N requests come within N / ``rate_per_s`` seconds, at gamma-distributed distances.

    ``burstiness`` is the distribution's shape, as in vLLM's benchmark client: 1 is Poisson arrivals, less has bursts,
    infinity is even distances.
    """
    requests = prompt_tokens.size
    distances = (
        np.ones(requests)
        if burstiness > _EVEN
        else np.random.default_rng(seed).gamma(burstiness, size=requests)
    )
    times = np.cumsum(distances)
    # All distances of very strong bursts may be too small for a number: all requests come at once.
    times_us = times / max(times[-1], np.finfo(np.float64).tiny) * (requests / rate_per_s * 1e6)
    return Traffic(prompt_tokens, output_tokens, times_us, 0)
