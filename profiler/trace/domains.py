"""How much the domains of a trace share their hot experts, and what one domain's hot set serves of another."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.profiler.trace.request_counts import RequestCounts
from placer.profiler.trace.selection import chance_coverage, hottest

LEAST_TOKENS = 1000
"""A domain of fewer tokens is left out: its hot experts are chance (see `uniform_counts`)."""
COUNTS_LOSE_DOMAINS = (
    "counts do not keep which domain a window is of, so whether one plan serves all domains cannot be told"
)
"""The note of an import that reduces domains to counts; their names stay in the header."""


@dataclass(frozen=True)
class DomainOverlap:
    """Overlap of D domains, by name.

    Attributes
    ----------
    experts
        Experts of a layer.
    tokens
        Tokens of each domain.
    jaccard
        float64 [D, D], experts in both hot quarters over experts in either, all layers together.
    coverage
        By share of hot experts (0.25, 0.5): float64 [D, D], what the hot set of the row's domain serves of the
        column's. On the diagonal, halves of the domain's requests serve each other.
    left_out
        Why a domain is not compared, by name.
    """

    experts: int
    names: tuple[str, ...]
    tokens: tuple[int, ...]
    jaccard: NDArray[np.float64]
    coverage: dict[float, NDArray[np.float64]]
    left_out: dict[str, str]

    def kept_gain(self, share: float) -> NDArray[np.float64]:
        """What is left of a domain's gain over chance under another's hot set: float64 [D, D], 1 on the diagonal.

        (coverage of the row's hot set − chance) / (coverage of the own hot set − chance); NaN where a domain's
        own hot set gains nothing.
        """
        gain = self.coverage[share] - chance_coverage(self.experts, share)
        own = np.diag(gain)
        return np.asarray(np.divide(gain, own, out=np.full(gain.shape, np.nan), where=own > 0))

    def document(self) -> dict[str, Any]:
        """The ``domain_overlap`` part of the ``trace info`` document."""
        return {
            "domains": list(self.names),
            "tokens": list(self.tokens),
            "jaccard_25": self.jaccard.tolist(),
            "coverage_25": self.coverage[0.25].tolist(),
            "coverage_50": self.coverage[0.5].tolist(),
            "left_out": dict(self.left_out),
        }


def domain_overlap(requests: RequestCounts, domains: tuple[str, ...], top_k: int) -> DomainOverlap | None:
    """Overlap of every domain with at least 1,000 tokens and two requests; None with fewer than two of them."""
    halves: list[NDArray[np.int64]] = []
    names: list[str] = []
    left_out: dict[str, str] = {}
    for number, name in enumerate(domains):
        own = requests.counts[requests.domain == number]
        tokens = round(float(own.sum(axis=(0, 2)).mean()) / top_k) if len(own) else 0
        pair = np.stack([own[half::2].sum(axis=0) for half in (0, 1)])
        if tokens < LEAST_TOKENS:
            left_out[name] = f"{tokens:,} tokens, fewer than {LEAST_TOKENS:,}"
        elif not pair.any(axis=2).all():
            left_out[name] = "fewer than two requests that use every layer"
        else:
            names.append(name)
            halves.append(pair)
    if len(names) < 2:
        return None
    parts = np.stack(halves)
    whole = parts.sum(axis=1)
    quarters = hottest(whole, 0.25)
    both = np.einsum("ale,ble->ab", quarters, quarters, dtype=np.int64)
    size = np.diag(both)
    return DomainOverlap(
        experts=whole.shape[2],
        names=tuple(names),
        tokens=tuple(round(float(one.sum(axis=1).mean()) / top_k) for one in whole),
        # A quarter of very few experts rounds to none.
        jaccard=both / np.maximum(size[:, None] + size[None, :] - both, 1),
        coverage={share: _coverage(parts, share) for share in (0.25, 0.5)},
        left_out=left_out,
    )


def _coverage(parts: NDArray[np.int64], share: float) -> NDArray[np.float64]:
    """`DomainOverlap.coverage` from the two halves of every domain, int64 [D, 2, L, E]."""
    whole = parts.sum(axis=1)
    served = _served(hottest(whole, share), whole)
    for domain, (one, other) in enumerate(parts):
        pair = _served(hottest(np.stack([one, other]), share), np.stack([other, one]))
        served[domain, domain] = np.diag(pair).mean()
    return served


def _served(hot: NDArray[np.bool_], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of each ``counts`` [B, L, E] that each ``hot`` [A, L, E] serves, mean over layers: float64 [A, B]."""
    share = counts / counts.sum(axis=2, keepdims=True)
    return np.asarray(np.einsum("ale,ble->ab", hot, share) / hot.shape[1])
