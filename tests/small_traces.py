"""Small traces written out by hand, and random sound ones for properties."""

import numpy as np
from hypothesis import strategies as st

from placer.model.spec import ModelSpec
from placer.profiler.trace.trace import PADDING, CountTrace, Phase, TokenTrace, TraceHeader


def token_trace(
    ids: object,
    *,
    experts: int,
    request: list[int] | None = None,
    phase: list[int] | None = None,
    domain: list[int] | None = None,
    domains: tuple[str, ...] = (),
) -> TokenTrace:
    """A token trace of ``ids`` [T, L, K]; one decode request unless said otherwise."""
    topk_ids = np.asarray(ids, dtype=np.uint16)
    T, L, K = topk_ids.shape
    requests = np.asarray([0] * T if request is None else request, dtype=np.int32)
    return TokenTrace(
        header=TraceHeader("tiny", tuple(range(L)), experts, K, "written by hand", domains),
        topk_ids=topk_ids,
        request=requests,
        position=np.array([int((requests[:at] == requests[at]).sum()) for at in range(T)], dtype=np.int32),
        phase=np.asarray([Phase.DECODE] * T if phase is None else phase, dtype=np.uint8),
        domain=None if domain is None else np.asarray(domain, dtype=np.int16),
    )


def count_trace(counts: object, *, top_k: int, tokens: list[int] | None = None) -> CountTrace:
    """A count trace of ``counts`` [W, L, E]; tokens from the first layer unless given."""
    array = np.asarray(counts, dtype=np.int64)
    _, L, E = array.shape
    window_tokens = array[:, 0].sum(axis=1) // top_k if tokens is None else tokens
    return CountTrace(
        header=TraceHeader("tiny", tuple(range(L)), E, top_k, "written by hand"),
        counts=array,
        window_tokens=np.asarray(window_tokens, dtype=np.int64),
    )


def phased(model: ModelSpec) -> TokenTrace:
    """24 requests of 16 prompt tokens, which all take experts 0 and 1, and 48 output tokens, which take 6 and 7."""
    requests, prompt, output = 24, 16, 48
    length, L = prompt + output, len(model.moe_layers)
    phase = np.tile(np.array([Phase.PREFILL] * prompt + [Phase.DECODE] * output, dtype=np.uint8), requests)
    chosen = np.where(phase[:, None] == Phase.PREFILL, [0, 1], [6, 7]).astype(np.uint16)
    return TokenTrace(
        header=TraceHeader(model.name, model.moe_layers, model.experts, model.top_k, "made up"),
        topk_ids=np.repeat(chosen[:, None], L, axis=1),
        request=np.repeat(np.arange(requests, dtype=np.int32), length),
        position=np.tile(np.arange(length, dtype=np.int32), requests),
        phase=phase,
    )


@st.composite
def token_traces(draw: st.DrawFn, *, padding: bool = False) -> TokenTrace:
    """Sound token traces of up to 6 requests, with prompts, outputs and domains."""
    L, E = draw(st.integers(1, 3)), draw(st.integers(2, 7))
    K = draw(st.integers(1, E))
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    T = sum(lengths)
    ids = np.argsort(random.random((T, L, E)), axis=2)[:, :, :K].astype(np.uint16)
    if padding:
        # Never the first token, so that every layer keeps a selection.
        ids[1:][random.random(ids[1:].shape) < 0.2] = PADDING
    request = np.repeat(np.arange(len(lengths)), lengths)
    prompts = [int(random.integers(0, length)) for length in lengths]
    phase = [
        Phase.PREFILL if at < prompt else Phase.DECODE
        for length, prompt in zip(lengths, prompts, strict=True)
        for at in range(length)
    ]
    return token_trace(
        ids,
        experts=E,
        request=request.tolist(),
        phase=[int(one) for one in phase],
        domain=(request % 2).tolist(),
        domains=("code", "prose"),
    )


@st.composite
def count_traces(draw: st.DrawFn) -> CountTrace:
    """Sound count traces: per window, ``tokens`` tokens that choose ``top_k`` distinct experts."""
    W, L, E = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(2, 6))
    K = draw(st.integers(1, E))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tokens = random.integers(1, 30, size=W)
    counts = np.zeros((W, L, E), dtype=np.int64)
    for window, layer in np.ndindex(W, L):
        chosen = np.argsort(random.random((tokens[window], E)), axis=1)[:, :K]
        counts[window, layer] = np.bincount(chosen.ravel(), minlength=E)
    return count_trace(counts, top_k=K, tokens=tokens.tolist())
