"""What a trace's arrays must hold to be a trace."""

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.trace.trace import PADDING, CountTrace, Phase, TokenTrace, Trace, TraceHeader

_BLOCK_IDS = 8_000_000
"""Ids checked at a time, so that a check needs little memory beside the trace."""
_MOST_TOKENS = 2**44
"""More tokens than any run sees; sums of counts below it stay inside int64."""


def check_trace(trace: Trace, where: str) -> None:
    """Check shapes, types, ranges and order of every array of ``trace``; ``where`` names it in errors.

    A trace is sound when every id is an expert or `PADDING`, no token chooses an expert twice in a layer,
    every layer holds selections, tokens of a request are contiguous with rising positions and one domain,
    and counts fit the tokens that a window saw (at most one selection of an expert per token, at most top-k
    in all).

    Raises
    ------
    BadInputError
        Naming the first array and entry that breaks a rule.
    """
    _check_header(trace.header, where)
    if isinstance(trace, TokenTrace):
        _check_tokens(trace, where)
    else:
        _check_counts(trace, where)


AGAIN = "import it again from the dump it came from, or record a new one"
"""What to do about a trace file that is not sound."""


def _broken(where: str, what: str, cure: str = AGAIN) -> BadInputError:
    return BadInputError(f"{where}: {what}", cure)


def _check_header(header: TraceHeader, where: str) -> None:
    layers = np.asarray(header.layers, dtype=np.int64)
    if not layers.size or layers[0] < 0 or np.any(np.diff(layers) <= 0):
        raise _broken(where, f"layers must be rising indices from 0, found {_shortened(header.layers)}")
    if not 1 <= header.experts <= PADDING:
        raise _broken(where, f"experts is {header.experts}, not between 1 and {PADDING}")
    if not 1 <= header.top_k <= header.experts:
        raise _broken(where, f"top_k is {header.top_k}, not between 1 and {header.experts} experts")


def _check_array(
    array: NDArray[np.generic], name: str, kind: str, shape: tuple[int, ...], where: str
) -> None:
    if array.dtype != np.dtype(kind):
        raise _broken(where, f"{name} is {array.dtype}, expected {kind}")
    if array.shape != shape:
        raise _broken(where, f"{name} has shape {array.shape}, expected {shape}")


def _check_tokens(trace: TokenTrace, where: str) -> None:
    header = trace.header
    T = trace.topk_ids.shape[0] if trace.topk_ids.ndim else 0
    L, K = len(header.layers), header.top_k
    _check_array(trace.topk_ids, "topk_ids", "uint16", (T, L, K), where)
    if T == 0:
        raise _broken(where, "it holds no tokens")
    _check_array(trace.request, "request", "int32", (T,), where)
    _check_array(trace.position, "position", "int32", (T,), where)
    _check_array(trace.phase, "phase", "uint8", (T,), where)
    _check_ids(trace.topk_ids, header, where)
    _check_order(trace, where)
    if trace.domain is not None:
        _check_array(trace.domain, "domain", "int16", (T,), where)
        if trace.domain.min() < -1 or trace.domain.max() >= len(header.domains):
            raise _broken(where, f"domain must index the {len(header.domains)} domain names, or be -1")
        mixed = (np.diff(trace.domain) != 0) & (np.diff(trace.request) == 0)
        if mixed.any():
            raise _broken(where, f"request {trace.request[np.argmax(mixed)]} changes its domain")
    if trace.topk_weights is not None:
        _check_array(trace.topk_weights, "topk_weights", "float16", (T, L, K), where)
        if not np.isfinite(trace.topk_weights).all():
            raise _broken(where, "topk_weights holds values that are not finite")


def _check_ids(ids: NDArray[np.uint16], header: TraceHeader, where: str) -> None:
    T, L, K = ids.shape
    chosen = np.zeros(L, dtype=bool)
    block = max(1, _BLOCK_IDS // (L * K))
    for start in range(0, T, block):
        part = ids[start : start + block]
        used = part != PADDING
        strange = used & (part >= header.experts)
        if strange.any():
            token, row, slot = (int(at) for at in np.argwhere(strange)[0])
            raise _broken(
                where,
                f"token {start + token}, layer {header.layers[row]}: expert {part[token, row, slot]} "
                f"of {header.experts}",
            )
        for one in range(K):
            for other in range(one + 1, K):
                twice = used[:, :, one] & (part[:, :, one] == part[:, :, other])
                if twice.any():
                    token, row = (int(at) for at in np.argwhere(twice)[0])
                    raise _broken(
                        where,
                        f"token {start + token}, layer {header.layers[row]}: expert {part[token, row, one]} "
                        "is chosen twice",
                        "correct what wrote the ids, or record again: a token chooses different experts of a "
                        "layer, and -1 is an unused slot",
                    )
        chosen |= used.any(axis=(0, 2))
    _check_every_layer(chosen, header, where)


def _check_every_layer(chosen: NDArray[np.bool_], header: TraceHeader, where: str) -> None:
    if not chosen.all():
        empty = [header.layers[row] for row in np.flatnonzero(~chosen)]
        raise _broken(
            where, f"no token is routed in layers {_shortened(tuple(empty))}; dense layers do not belong"
        )


def _check_order(trace: TokenTrace, where: str) -> None:
    strange = ~np.isin(trace.phase, list(Phase))
    if strange.any():
        raise _broken(
            where, f"phase is {trace.phase[np.argmax(strange)]}, neither 0 (prefill) nor 1 (decode)"
        )
    if trace.request.min() < 0:
        raise _broken(where, f"request {trace.request.min()} is negative")
    if trace.position.min() < 0:
        raise _broken(where, f"position {trace.position.min()} is negative")
    starts = np.flatnonzero(np.diff(trace.request, prepend=trace.request[0] - np.int64(1)))
    names, blocks = np.unique(trace.request[starts], return_counts=True)
    if names.size != starts.size:
        raise _broken(where, f"tokens of request {names[np.argmax(blocks > 1)]} are not contiguous")
    within = np.diff(trace.request) == 0
    falling = within & (np.diff(trace.position.astype(np.int64)) <= 0)
    if falling.any():
        raise _broken(where, f"positions of request {trace.request[np.argmax(falling)]} do not rise")


def _check_counts(trace: CountTrace, where: str) -> None:
    header = trace.header
    W = trace.counts.shape[0] if trace.counts.ndim else 0
    L, E = len(header.layers), header.experts
    _check_array(trace.counts, "counts", "int64", (W, L, E), where)
    _check_array(trace.window_tokens, "tokens", "int64", (W,), where)
    if W == 0:
        raise _broken(where, "it holds no windows")
    if trace.counts.min() < 0:
        raise _broken(where, f"counts holds {trace.counts.min()}, which is negative")
    if trace.window_tokens.min() < 0 or trace.window_tokens.max() > _MOST_TOKENS:
        raise _broken(where, f"tokens of a window must lie between 0 and {_MOST_TOKENS}")
    most = trace.counts.max(axis=(1, 2))
    over = most > trace.window_tokens
    if over.any():
        window = int(np.argmax(over))
        raise _broken(
            where,
            f"window {window}: {most[window]} selections of one expert, {trace.window_tokens[window]} tokens",
        )
    selections = trace.counts.sum(axis=2).max(axis=1)
    over = selections > trace.window_tokens * header.top_k
    if over.any():
        window = int(np.argmax(over))
        raise _broken(
            where,
            f"window {window}: {selections[window]} selections in a layer from {trace.window_tokens[window]} "
            f"tokens of top-{header.top_k}",
        )
    _check_every_layer(np.asarray(trace.counts.any(axis=(0, 2))), header, where)


def _shortened(layers: tuple[int, ...]) -> str:
    shown = ", ".join(str(layer) for layer in layers[:8])
    return shown + (", …" if len(layers) > 8 else "")
