"""One kernel call to time: how many rows each active expert gets, and how many tokens the call holds."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from placer.kernels.expert_shape import ExpertShape


class Role(StrEnum):
    """What the time of a call is used for."""

    GRID = "grid"
    """Fits coefficients."""
    HELDOUT = "heldout"
    """Chooses between fits, or reports their error; never fits."""
    IDLE = "idle"
    """Every slot is skipped: what a call costs that finds no expert of its side."""


@dataclass(frozen=True)
class Call:
    """A call; which experts, layer and tokens it names is drawn anew for every sample.

    Attributes
    ----------
    rows
        Rows of each active expert, heaviest first; experts without rows are left out.
    tokens
        q, tokens of the call; slots beyond the sum of ``rows`` are skipped slots.
    role
        What its time is used for.
    source
        Where the call comes from: "rows", "active", "tokens", "mix" (grid), "zipf" or "trace" (held-out), "idle".
    """

    rows: tuple[int, ...]
    tokens: int
    role: Role
    source: str


@dataclass(frozen=True)
class TimedCall:
    """A call and its time (the lower quartile of its samples)."""

    call: Call
    time_us: float


def least_tokens(rows: tuple[int, ...], top_k: int) -> int:
    """Fewest tokens that can send so many rows: an expert gets a token once, a token names k experts."""
    return max(1, *rows, -(-sum(rows) // top_k)) if rows else 1


def routing(call: Call, shape: ExpertShape, generator: np.random.Generator) -> NDArray[np.int64]:
    """Random expert ids [q, k] with the rows of ``call``, -1 in slots without a row.

    Rows are dealt round the tokens in one random order, so no token names an expert twice as long as no
    expert has more rows than there are tokens.

    Raises
    ------
    ValueError
        When the rows do not fit the tokens, or there are more active experts than experts.
    """
    if len(call.rows) > shape.experts or least_tokens(call.rows, shape.top_k) > call.tokens:
        raise ValueError(
            f"{len(call.rows)} experts with {sum(call.rows)} rows do not fit {call.tokens} tokens"
        )
    ids = np.full((call.tokens, shape.top_k), -1, dtype=np.int64)
    experts = generator.permutation(shape.experts)[: len(call.rows)]
    order = generator.permutation(call.tokens)
    dealt = np.arange(sum(call.rows))
    ids[order[dealt % call.tokens], dealt // call.tokens] = np.repeat(experts, call.rows)
    return ids
