"""A routing trace in memory: which experts each token chose (token trace), or how often (count trace)."""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

PADDING = 65535
"""The expert id that marks an unused top-k slot (int16 -1 read as uint16)."""


class Phase(IntEnum):
    """Which phase of a request a token belongs to."""

    PREFILL = 0
    DECODE = 1


@dataclass(frozen=True)
class TraceHeader:
    """What a trace says of itself.

    Attributes
    ----------
    model
        Name of the model that routed the tokens.
    layers
        Checkpoint indices of the MoE layers, in the order of the arrays' layer axis.
    experts, top_k
        Routed experts per layer, and how many each token chooses.
    source
        How the trace was obtained, e.g. "sglang-kt 0.7.2 recorder, per_token" or "synthetic: …".
    domains
        Names that `TokenTrace.domain` indexes.
    notes
        What an importer had to assume or drop, one sentence each.
    """

    model: str
    layers: tuple[int, ...]
    experts: int
    top_k: int
    source: str
    domains: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TokenTrace:
    """Per-token routing. T tokens, L MoE layers, K = top-k.

    Attributes
    ----------
    topk_ids
        uint16 [T, L, K]; `PADDING` marks an unused slot.
    request
        int32 [T], which request a token belongs to; tokens of one request are contiguous, in text order.
    position
        int32 [T], position inside the request.
    phase
        uint8 [T], a `Phase`.
    domain
        int16 [T] into ``header.domains``, or None.
    topk_weights
        float16 [T, L, K], or None.
    """

    header: TraceHeader
    topk_ids: NDArray[np.uint16]
    request: NDArray[np.int32]
    position: NDArray[np.int32]
    phase: NDArray[np.uint8]
    domain: NDArray[np.int16] | None = None
    topk_weights: NDArray[np.float16] | None = None

    @property
    def tokens(self) -> int:
        """Number of tokens T."""
        return int(self.topk_ids.shape[0])


@dataclass(frozen=True)
class CountTrace:
    """How many tokens chose each expert, per window (a request, a pass or a whole run).

    Attributes
    ----------
    counts
        int64 [W, L, E].
    window_tokens
        int64 [W], tokens that each window saw.
    """

    header: TraceHeader
    counts: NDArray[np.int64]
    window_tokens: NDArray[np.int64] = field()

    @property
    def tokens(self) -> int:
        """Number of tokens over all windows."""
        return int(self.window_tokens.sum())


Trace = TokenTrace | CountTrace
