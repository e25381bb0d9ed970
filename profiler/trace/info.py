"""The `trace info` document: what a trace holds, its statistics beside chance, and the verdict."""

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.independence_error import BATCH_TOKENS, CHUNK_TOKENS, independence_error
from placer.profiler.steps import StepKind
from placer.profiler.trace.domains import COUNTS_LOSE_DOMAINS, DomainOverlap, domain_overlap
from placer.profiler.trace.heldout import LEAST_REQUESTS, HeldoutCoverage, heldout_coverage
from placer.profiler.trace.judgement import LEAST_TOKENS, judge
from placer.profiler.trace.lru import lru_hits
from placer.profiler.trace.request_counts import request_counts
from placer.profiler.trace.selection import coverage, hottest, inclusion_share, selection_counts
from placer.profiler.trace.statistics import distinct_experts, gini, lag1_reuse, max_over_mean
from placer.profiler.trace.trace import CountTrace, Phase, TokenTrace, Trace
from placer.profiler.trace.uniform import uniform_counts

COVERAGE_PERCENT = (25, 50, 60)
DISTINCT_BATCHES = (1, 8, 64)
LRU_CONCURRENCY = (1, 4, 16)
"""Running requests that share an LRU cache of experts."""
_LRU_ENTRIES = 16_000_000
"""Steps times layers times experts that a cache is played over: about a second."""
_NULL_DRAWS = 64
_NULL_SEED = 0


def trace_info(trace: Trace) -> dict[str, Any]:
    """The ``trace info`` document.

    Skew and reuse are of the decode tokens where there are any (``measured_on``), means over layers; a
    mixed trace adds ``prefill`` with the skew of its prompts. ``uniform_null`` is the coverage that a
    uniform router shows at the same number of tokens (simulated, fixed seed): a small sample looks skewed by
    chance. ``heldout_coverage`` is of requests that the hot set was not learned from, with a 95 % interval over
    resampled requests. ``lru_hit_share`` is what an LRU cache of so many experts of each layer finds, by running
    requests. ``counts_alone`` is what replay would lose had only counts been recorded.

    Raises
    ------
    BadInputError
        When a layer has no selection in one of the trace's phases.
    """
    header = trace.header
    present = [one for one in Phase if np.any(trace.phase == one)] if isinstance(trace, TokenTrace) else []
    phase = (Phase.DECODE if Phase.DECODE in present else Phase.PREFILL) if present else None
    counts = _routed(selection_counts(trace, phase), header.layers)
    requests = request_counts(trace, phase)
    overlap = domain_overlap(requests, header.domains, header.top_k)
    heldout = {percent: heldout_coverage(requests, percent / 100) for percent in COVERAGE_PERCENT}
    skew = _skew(counts, header.top_k)
    nulls: dict[str, str] = {}
    reuse = _reuse(trace, phase, nulls)
    document: dict[str, Any] = {
        "kind": "tokens" if isinstance(trace, TokenTrace) else "counts",
        "model": header.model,
        "source": header.source,
        "layers": list(header.layers),
        "experts": header.experts,
        "top_k": header.top_k,
        "tokens": trace.tokens,
        "requests": _requests(trace),
        "phases": _phases(trace, present, nulls),
        "measured_on": "all" if phase is None else phase.name.lower(),
        "domains": list(header.domains),
        **skew,
        **_locality(counts, header.top_k),
        "lag1_reuse": None if reuse is None else float(reuse.mean()),
        "layer_profile": {
            "coverage_25": coverage(counts, 0.25).tolist(),
            "coverage_50": coverage(counts, 0.5).tolist(),
            "gini": gini(counts).tolist(),
            "max_over_mean": max_over_mean(counts).tolist(),
            "lag1_reuse": None if reuse is None else reuse.tolist(),
        },
        "lru_hit_share": _lru(trace, phase, nulls),
        "heldout_coverage": _heldout(heldout, requests.requests, nulls),
        "domain_overlap": _overlap(overlap, trace, nulls),
        "counts_alone": _counts_alone(trace, phase, nulls),
        "prefill": _prefill(trace, present, counts, nulls),
    }
    judgement = judge(
        experts=header.experts,
        tokens=_tokens(counts, header.top_k),
        requests=document["requests"] if isinstance(trace, TokenTrace) else None,
        coverage=skew["coverage"]["50"],
        uniform_null=skew["uniform_null"]["50"],
        heldout=heldout[50],
        overlap=overlap,
        lost_domains=len(header.domains) if isinstance(trace, CountTrace) else 0,
        token_kind="output tokens" if len(present) > 1 else "tokens",
    )
    document.update(
        {
            "verdict": judgement.verdict.value,
            "verdict_reason": judgement.reason,
            "advice": judgement.advice,
            "notes": list(header.notes),
            "null_reasons": nulls,
        }
    )
    return document


def _phases(trace: Trace, present: list[Phase], nulls: dict[str, str]) -> dict[str, int] | None:
    if isinstance(trace, CountTrace):
        nulls["phases"] = "counts do not tell phases apart"
        return None
    return {one.name.lower(): int((trace.phase == one).sum()) for one in present}


def _requests(trace: Trace) -> int:
    return int(np.unique(trace.request).size) if isinstance(trace, TokenTrace) else len(trace.counts)


def _tokens(counts: NDArray[np.int64], top_k: int) -> int:
    return round(float(counts.sum(axis=1).mean()) / top_k)


def _routed(counts: NDArray[np.int64], layers: tuple[int, ...]) -> NDArray[np.int64]:
    silent = ~counts.any(axis=1)
    if silent.any():
        raise BadInputError(
            f"layer {layers[int(np.argmax(silent))]} has no selection in one of the trace's phases",
            "record more tokens",
        )
    return counts


def _skew(counts: NDArray[np.int64], top_k: int) -> dict[str, Any]:
    """Coverage, Gini and max/mean, each beside its uniform null; means over layers (``counts`` [L, E])."""
    null = uniform_counts(
        max(_tokens(counts, top_k), 1),
        counts.shape[1],
        top_k,
        _NULL_DRAWS,
        np.random.default_rng(_NULL_SEED),
    )
    shares = {str(percent): percent / 100 for percent in COVERAGE_PERCENT}
    return {
        "coverage": {name: float(coverage(counts, share).mean()) for name, share in shares.items()},
        "uniform_null": {name: float(coverage(null, share).mean()) for name, share in shares.items()},
        "gini": float(gini(counts).mean()),
        "uniform_null_gini": float(gini(null).mean()),
        "max_over_mean": float(max_over_mean(counts).mean()),
        "uniform_null_max_over_mean": float(max_over_mean(null).mean()),
    }


def _reuse(trace: Trace, phase: Phase | None, nulls: dict[str, str]) -> NDArray[np.float64] | None:
    """`lag1_reuse` of every layer, or None with the reason noted."""
    reuse = lag1_reuse(trace, phase) if isinstance(trace, TokenTrace) else None
    if reuse is None:
        reason = (
            "no two consecutive tokens of a request"
            if isinstance(trace, TokenTrace)
            else "counts hold no token order"
        )
        nulls["lag1_reuse"] = nulls["layer_profile.lag1_reuse"] = reason
    return reuse


def _lru(trace: Trace, phase: Phase | None, nulls: dict[str, str]) -> dict[str, dict[str, float]] | None:
    """Share of selections that an LRU cache finds, by running requests and per cent of experts it holds."""
    if phase is not Phase.DECODE:
        nulls["lru_hit_share"] = "counts hold no token order" if phase is None else "no output was recorded"
        return None
    E = trace.header.experts
    played = {running: lru_hits(trace, running, most_entries=_LRU_ENTRIES) for running in LRU_CONCURRENCY}
    return {
        str(running): {
            str(percent): float(hits.selection_share(round(percent / 100 * E)).mean())
            for percent in COVERAGE_PERCENT
        }
        for running, hits in played.items()
    }


def _locality(counts: NDArray[np.int64], top_k: int) -> dict[str, Any]:
    """Distinct experts by batch, and what chance shows of them and of reuse; means over layers.

    By chance an expert is reused with K / E under a uniform router, and with Σ p² / K where each token draws
    experts by the trace's own frequencies p.
    """
    E = counts.shape[1]
    share = inclusion_share(counts, top_k)
    return {
        "uniform_null_lag1_reuse": top_k / E,
        "popularity_lag1_reuse": float(((share**2).sum(axis=1) / share.sum(axis=1)).mean()),
        "distinct_experts": {
            str(batch): float(distinct_experts(share, batch).mean()) for batch in DISTINCT_BATCHES
        },
        "uniform_null_distinct_experts": {
            str(batch): E * (1.0 - (1.0 - top_k / E) ** batch) for batch in DISTINCT_BATCHES
        },
    }


def _heldout(
    heldout: dict[int, HeldoutCoverage | None], requests: int, nulls: dict[str, str]
) -> dict[str, Any] | None:
    document = {str(percent): asdict(one) for percent, one in heldout.items() if one is not None}
    if len(document) < len(heldout):
        nulls["heldout_coverage"] = (
            f"at least {LEAST_REQUESTS} requests or windows are needed, the trace has {requests}"
            if requests < LEAST_REQUESTS
            else f"no draw of the {requests} requests leaves selections of every layer to test on"
        )
        return None
    return document


def _overlap(overlap: DomainOverlap | None, trace: Trace, nulls: dict[str, str]) -> dict[str, Any] | None:
    if overlap is None:
        if len(trace.header.domains) < 2:
            nulls["domain_overlap"] = "the trace names no two domains"
        elif isinstance(trace, CountTrace):
            nulls["domain_overlap"] = COUNTS_LOSE_DOMAINS
        else:
            nulls["domain_overlap"] = "no two domains with enough tokens"
        return None
    return overlap.document()


def _counts_alone(trace: Trace, phase: Phase | None, nulls: dict[str, str]) -> dict[str, Any] | None:
    if isinstance(trace, CountTrace) or phase is not Phase.DECODE:
        nulls["counts_alone"] = "needs decode tokens one by one"
        return None
    if trace.tokens < LEAST_TOKENS:
        nulls["counts_alone"] = f"fewer than {LEAST_TOKENS:,} tokens"
        return None
    try:
        return {
            f"{kind.value}_{tokens}": asdict(independence_error(trace, tokens, kind))
            for kind, tokens in ((StepKind.DECODE, BATCH_TOKENS), (StepKind.PREFILL, CHUNK_TOKENS))
        }
    except BadInputError as error:
        nulls["counts_alone"] = error.what
        return None


def _prefill(
    trace: Trace, present: list[Phase], counts: NDArray[np.int64], nulls: dict[str, str]
) -> dict[str, Any] | None:
    if len(present) < 2:
        nulls["prefill"] = "the trace does not hold both phases"
        return None
    header = trace.header
    prompts = _routed(selection_counts(trace, Phase.PREFILL), header.layers)
    hot, hot_prompts = hottest(counts, 0.25), hottest(prompts, 0.25)
    shared = (hot & hot_prompts).sum() / max(1, (hot | hot_prompts).sum())
    return {**_skew(prompts, header.top_k), "jaccard_25_with_decode": float(shared)}
