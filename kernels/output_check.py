"""Does a loaded kernel compute what its weights say? Asked of every kernel before it is timed."""

import torch

from placer.errors import MissingComponentError
from placer.kernels.expert_mlp import SKIP, ExpertMLP, reference_forward
from placer.kernels.expert_shape import ExpertShape

TOKENS = 8
"""Tokens with rows in a checked call; the others of a larger call are skipped, as they cost the reference time."""
EXPERTS = 2
"""Experts of a checked call: their float32 weights are the cost of a check."""


def check_output(backend: ExpertMLP, shape: ExpertShape, max_tokens: int, seed: int) -> float:
    """The relative error of the loaded ``backend``, on both sides of the border where there is one.

    The larger of its calls' errors, each the norm of what is off over the norm of the float32 sum.

    Raises
    ------
    MissingComponentError
        When the error is larger than `ExpertMLP.error_limit`.
    """
    border = type(backend).border_hint(shape)
    counts = (TOKENS,) if border is None else (min(TOKENS, border), border + 1)
    worst = 0.0
    for tokens in counts:
        error = output_error(backend, shape, min(tokens, max_tokens), seed)
        # A comparison that fails is one with NaN, which no maximum would keep.
        if not error <= backend.error_limit:
            raise MissingComponentError(
                f"kernel {backend.name} returns wrong numbers on this machine: off by {error:.1%} of the "
                f"output in a call of {tokens} tokens, where {backend.method} explains {backend.error_limit:.1%}",
                "use another kernel; this one must not serve here either",
            )
        worst = max(worst, error)
    return worst


def output_error(backend: ExpertMLP, shape: ExpertShape, tokens: int, seed: int) -> float:
    """Relative error of one call of ``tokens`` tokens on the first layer."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, shape.hidden_size, generator=generator).to(torch.bfloat16)
    weights = torch.rand(tokens, shape.top_k, generator=generator)
    ids = torch.full((tokens, shape.top_k), SKIP, dtype=torch.int64)
    count = min(EXPERTS, shape.top_k)
    chosen = torch.randperm(shape.experts, generator=generator)[:count]
    ids[:TOKENS, :count] = chosen
    expected = reference_forward(lambda expert: backend.loaded(0, expert), x, ids, weights)
    found = backend.forward(0, x, ids, weights).cpu().to(torch.float32)
    return float((found - expected).norm() / expected.norm())
