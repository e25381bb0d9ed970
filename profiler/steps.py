"""Steps: what one forward pass asks of every expert, as rows per layer and expert."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class StepKind(StrEnum):
    """What a forward pass does."""

    DECODE = "decode"
    PREFILL = "prefill"
    MIXED = "mixed"


@dataclass(frozen=True)
class Steps:
    """S forward passes of one kind.

    Attributes
    ----------
    rows
        int32 [S, L, E], tokens of the step routed to each expert.
    tokens
        int64 [S], tokens of the step: the concurrency R of a decode step, C of a prefill chunk,
        R + C of a mixed step. A decode step that is padded to a CUDA graph's batch counts the padding, which has no
        rows.
    kind
        Decode, prefill, or both at once.
    approximate
        None when rows were replayed from tokens; otherwise one sentence on what was assumed.
    immediate
        bool [S, L, E], experts whose CPU work is not deferred to run beside the next layer; None where none is.
    """

    rows: NDArray[np.int32]
    tokens: NDArray[np.int64]
    kind: StepKind
    approximate: str | None = None
    immediate: NDArray[np.bool_] | None = None
