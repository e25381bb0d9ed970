"""Tokens and prompts of requests drawn at random with replacement, as a long run of the traffic brings them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.profiler.trace.mix import domain_weights
from placer.profiler.trace.trace import Phase, TokenTrace


@dataclass(frozen=True)
class RequestDraws:
    """The G requests of a trace, each equally likely, or as often as a mix of domains asks for.

    Attributes
    ----------
    request
        int64 [T], the request (0 to G - 1) of each token.
    stratum
        int64 [G], which requests stand for each other: those of one domain of the mix, or all.
    token_weight
        float64 [T], how often each token is drawn, relative to others; 0 outside the mix.
    """

    trace: TokenTrace
    request: NDArray[np.int64]
    stratum: NDArray[np.int64]
    token_weight: NDArray[np.float64]

    @classmethod
    def of(cls, trace: TokenTrace, mix: Mapping[str, float]) -> "RequestDraws":
        """Draws from ``trace``; ``mix`` holds shares of the tokens by domain, empty for the trace's own."""
        starts = np.flatnonzero(np.diff(trace.request, prepend=trace.request[0] - np.int64(1)))
        request = np.repeat(np.arange(starts.size), np.diff(starts, append=trace.tokens))
        if not mix:
            return cls(trace, request, np.zeros(starts.size, dtype=np.int64), np.ones(trace.tokens))
        domain, weight = domain_weights(trace, mix)
        return cls(trace, request, domain[starts], weight[domain])

    @property
    def requests(self) -> int:
        """Number of requests G."""
        return self.stratum.size

    def slots(self, steps: int, concurrency: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Decode tokens of steps whose slots are drawn independently: int64 [steps, R] into the trace."""
        tokens = np.flatnonzero((self.trace.phase == Phase.DECODE) & (self.token_weight > 0))
        line = np.cumsum(self.token_weight[tokens])
        at = np.searchsorted(line, random.random((steps, concurrency)) * line[-1], side="right")
        return np.asarray(tokens[np.minimum(at, tokens.size - 1)])

    def chunks(
        self, steps: int, chunk_tokens: int, random: np.random.Generator, *, from_decode: bool
    ) -> NDArray[np.int64]:
        """Prompt tokens of chunks cut from whole prompts in random order: int64 [steps, C] into the trace.

        With ``from_decode``, decode tokens stand in where the trace has no prompts.
        """
        prompts = self.trace.phase == Phase.PREFILL
        if not prompts.any() and from_decode:
            prompts = self.trace.phase == Phase.DECODE
        tokens = np.flatnonzero(prompts & (self.token_weight > 0))
        starts = np.flatnonzero(np.diff(self.request[tokens], prepend=-1))
        lengths = np.diff(starts, append=tokens.size)
        often = self.token_weight[tokens[starts]]
        mean_tokens = float(often @ lengths / often.sum())
        wanted = steps * chunk_tokens
        line = np.empty(0, dtype=np.int64)
        while line.size < wanted:
            drawn = random.choice(
                starts.size, 1 + int(1.1 * (wanted - line.size) / mean_tokens), p=often / often.sum()
            )
            ends = np.cumsum(lengths[drawn])
            within = np.arange(ends[-1]) - np.repeat(ends - lengths[drawn], lengths[drawn])
            line = np.concatenate([line, tokens[np.repeat(starts[drawn], lengths[drawn]) + within]])
        return line[:wanted].reshape(steps, chunk_tokens)

    def multiplicities(self, draws: int, random: np.random.Generator) -> NDArray[np.float64]:
        """How often each request is drawn in each of ``draws`` resamples, less once: float64 [draws, G].

        Each stratum of n requests keeps its number; sqrt(n / (n - 1)) makes up for the spread that a resample of
        so few lacks.
        """
        counts = np.zeros((draws, self.requests))
        for one in np.unique(self.stratum):
            members = np.flatnonzero(self.stratum == one)
            n = members.size
            drawn = random.multinomial(n, np.full(n, 1.0 / n), size=draws) - 1.0
            counts[:, members] = drawn * np.sqrt(n / max(1, n - 1))
        return counts
