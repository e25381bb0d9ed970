"""What steps sampled from counts alone get wrong, measured where the tokens are known."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.profiler.independence import independent_rows
from placer.profiler.replay import replay_decode, replay_prefill
from placer.profiler.steps import StepKind
from placer.profiler.trace.selection import hottest, selection_share
from placer.profiler.trace.trace import Phase, TokenTrace

BATCH_TOKENS = 64
CHUNK_TOKENS = 512
"""Tokens of the decode step and of the chunk that `trace info` states the error for."""
_STEPS = {StepKind.DECODE: 256, StepKind.PREFILL: 48}
_SEED = 0


@dataclass(frozen=True)
class IndependenceError:
    """Sampled steps against replayed ones, as fractions of the replayed figure (0: no error).

    Attributes
    ----------
    distinct
        Mean distinct experts of a layer in a step.
    heaviest
        Mean rows of a layer's heaviest expert.
    spread
        Standard deviation over steps of the rows of cold experts, the hottest half of each layer being hot: what
        decides how far slow steps lie from the mean.
    """

    distinct: float
    heaviest: float
    spread: float


def independence_error(trace: TokenTrace, tokens: int, kind: StepKind) -> IndependenceError:
    """Error of sampling steps of ``tokens`` tokens from the counts of ``trace``'s tokens of that kind.

    Where the trace holds no prompts, decode tokens in text order stand in for them.

    Raises
    ------
    BadInputError
        When the trace holds no tokens of the kind (see `replay_decode`).
    """
    steps = _STEPS[kind]
    if kind is StepKind.DECODE:
        replayed = replay_decode(trace, tokens, steps, _SEED).rows
        phase = Phase.DECODE
    else:
        replayed = replay_prefill(trace, tokens, steps, _SEED, from_decode=True).rows
        phase = Phase.PREFILL if (trace.phase == Phase.PREFILL).any() else Phase.DECODE
    share = selection_share(trace, phase)
    sampled = independent_rows(share, tokens, steps, np.random.default_rng(_SEED))
    cold = ~hottest(share, 0.5)
    real, drawn = _figures(replayed, cold), _figures(sampled, cold)
    # Steps that never differ have no spread to get wrong.
    errors = (drawn - real) / np.where(real > 0, real, 1.0)
    return IndependenceError(*(float(error) for error in errors))


def _figures(rows: NDArray[np.int32], cold: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Distinct experts, heaviest rows, spread of cold rows: float64 [3] from rows [S, L, E]."""
    spread = np.einsum("sle,le->s", rows, cold).std()
    return np.array([(rows > 0).sum(axis=2).mean(), rows.max(axis=2).mean(), spread])
