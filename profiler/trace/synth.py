"""Synthetic traces with the measured statistics of a known model, for when no recording is at hand."""

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.known_name import unknown_value
from placer.profiler.trace.synth_presets import PRESETS, SynthPreset
from placer.profiler.trace.trace import Phase, TokenTrace, TraceHeader

MOST_TOKENS = 2**27
"""Tokens of a trace that is made up; more would only take long."""
_MOST_DOMAINS = 2**15 - 1
"""What a trace file numbers domains up to."""


def synthesise(
    preset: str | SynthPreset,
    *,
    requests: int = 64,
    prompt_tokens: int = 128,
    output_tokens: int = 256,
    domains: int | None = None,
    seed: int = 0,
) -> TokenTrace:
    """A token trace of ``requests`` requests, dealt round-robin to ``domains`` domains (4, or one per request).

    ``preset`` is a name in `PRESETS`, or a preset of one's own.

    A Gamma hierarchy: in each layer an expert has its own score, times a factor per domain, times a factor
    per request. A token keeps each of its predecessor's experts with probability ρ and fills up to top-k by
    drawing without replacement in proportion to the scores. Prompts draw part of the scores anew and depend
    less on the domain. No figure on prompts of these models is known; that they differ, and how domains
    overlap in them, follows GLM-5.2 (JustVugg/colibri #175, #954). The header says that it is synthetic.

    Raises
    ------
    BadInputError
        When the preset is unknown, a number is too small to make a trace, or a domain would have no request.
    """
    if isinstance(preset, SynthPreset):
        chosen, name = preset, preset.model
    elif preset in PRESETS:
        chosen, name = PRESETS[preset], preset
    else:
        raise unknown_value("preset", preset, PRESETS)
    domains = max(1, min(4, requests)) if domains is None else domains
    if (
        min(requests, output_tokens, domains) < 1
        or prompt_tokens < 0
        or requests * (prompt_tokens + output_tokens) > MOST_TOKENS
        or domains > _MOST_DOMAINS
    ):
        raise BadInputError(
            f"a trace of {requests} requests, {prompt_tokens} + {output_tokens} tokens, {domains} domains",
            "give at least one of each (prompt tokens may be 0), fewer than 100 million tokens in all, and "
            f"{_MOST_DOMAINS:,} domains at most",
        )
    if domains > requests:
        raise BadInputError(
            f"{domains} domains need as many requests, {requests} were asked for",
            "lower --domains or raise --requests",
        )
    random = np.random.default_rng(seed)
    domain = np.arange(requests) % domains
    outputs, prompts = _scores(chosen, domain, random)
    reuse = _by_layer(chosen, "reuse").astype(np.float32)
    before = np.zeros(outputs.shape, dtype=bool)
    prompt_ids = _routed(
        prompts, reuse * np.float32(chosen.prompt_reuse), prompt_tokens, chosen.top_k, before, random
    )
    output_ids = _routed(outputs, reuse, output_tokens, chosen.top_k, before, random)
    ids = np.concatenate([prompt_ids, output_ids], axis=1)
    length = prompt_tokens + output_tokens
    phase = np.full(length, Phase.DECODE, dtype=np.uint8)
    phase[:prompt_tokens] = Phase.PREFILL
    return TokenTrace(
        header=TraceHeader(
            model=chosen.model,
            layers=tuple(range(chosen.layers)),
            experts=chosen.experts,
            top_k=chosen.top_k,
            source=f"synthetic: preset {name}, seed {seed}, statistics from {chosen.origin}",
            domains=tuple(f"synthetic {number}" for number in range(domains)),
            notes=("synthetic: no model routed these tokens",),
        ),
        topk_ids=ids.reshape(requests * length, chosen.layers, chosen.top_k),
        request=np.repeat(np.arange(requests, dtype=np.int32), length),
        position=np.tile(np.arange(length, dtype=np.int32), requests),
        phase=np.tile(phase, requests),
        domain=np.repeat(domain.astype(np.int16), length),
    )


def _scores(
    preset: SynthPreset, domain: NDArray[np.int64], random: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scores of every request's outputs and prompts: float32 [R, L, E] each."""
    L, E, R = preset.layers, preset.experts, domain.size
    base_shape = _by_layer(preset, "base")[:, None]
    request_shape = _by_layer(preset, "request")[:, None]
    base = random.gamma(base_shape, size=(L, E))
    request = random.gamma(request_shape, 1.0 / request_shape, size=(R, L, E))
    shared = random.random((L, E)) < preset.prompt_overlap
    prompt_base = np.where(shared, base, random.gamma(base_shape, size=(L, E)))

    def factor(shape: float) -> NDArray[np.float64]:
        drawn = random.gamma(shape, 1.0 / shape, size=(int(domain.max()) + 1, L, E))
        # Gamma draws over their sum are Dirichlet: what an expert gives to one domain, others lack.
        return np.asarray(drawn / drawn.mean(axis=0) if preset.domains_compete else drawn)

    outputs = base * factor(preset.domain_shape)[domain] * request
    prompts = prompt_base * factor(preset.prompt_domain_shape)[domain] * request
    # Far below any score that is ever chosen, and above the smallest normal float32.
    return np.maximum(outputs, 1e-30).astype(np.float32), np.maximum(prompts, 1e-30).astype(np.float32)


def _by_layer(preset: SynthPreset, field: str) -> NDArray[np.float64]:
    """A field of the preset's shapes at every layer, linear between the given ones: float64 [L]."""
    at = [shape.layer for shape in preset.shapes]
    value = [getattr(shape, field) for shape in preset.shapes]
    return np.asarray(np.interp(np.arange(preset.layers), at, value), dtype=np.float64)


def _routed(
    scores: NDArray[np.float32],
    reuse: NDArray[np.float32],
    tokens: int,
    top_k: int,
    before: NDArray[np.bool_],
    random: np.random.Generator,
) -> NDArray[np.uint16]:
    """Experts of ``tokens`` consecutive tokens of R requests: uint16 [R, tokens, L, K].

    ``scores`` [R, L, E]; ``reuse`` [L]; ``before`` [R, L, E], the experts of the token before, is updated.
    Each kept expert stays first; the rest are a draw without replacement in proportion to the scores: the
    smallest of exponential keys divided by scores (equal to Gumbel-top-k on log-scores).
    """
    R, L, E = scores.shape
    ids = np.empty((R, tokens, L, top_k), dtype=np.uint16)
    mean = 1.0 / scores
    keys = np.empty((R, L, E), dtype=np.float32)
    for token in range(tokens):
        random.standard_exponential(out=keys, dtype=np.float32)
        keys *= mean
        kept = before & (random.random((R, L, E), dtype=np.float32) < reuse[:, None])
        keys[kept] = -1.0
        chosen = np.argpartition(keys, top_k - 1, axis=2)[:, :, :top_k]
        ids[:, token] = chosen
        before[:] = False
        np.put_along_axis(before, chosen, True, axis=2)
    return ids
