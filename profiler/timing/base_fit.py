"""From the times of single parts to the base of a step: curves over tokens, and attention by entries seen."""

from collections.abc import Mapping

import numpy as np
from scipy.optimize import nnls

from placer.errors import BadInputError
from placer.kernels.attention import AttentionShape
from placer.profiler.base_cost import AttentionFit, AttentionPart, BasePart, TokenCurve
from placer.profiler.timing.base_plan import BaseGrid, PlannedAttention, PlannedPart
from placer.profiler.timing.base_points import AttentionSize, Size, Work, attention_sizes, part_tokens

Times = Mapping[tuple[Work, Size], float]
"""Microseconds by work and size."""
LEAST_POINTS = 4


def fit_part(part: PlannedPart, grid: BaseGrid, times: Times) -> BasePart:
    """The curve through what was timed, judged at token counts between."""
    fitting, judging = part_tokens(part, grid)
    curve = TokenCurve(fitting, tuple(times[part.work, q] for q in fitting))
    errors = [abs(curve.at(q) / times[part.work, q] - 1.0) for q in judging]
    return BasePart(
        part.name, part.count, part.sampled_only, curve, float(np.mean(errors)) if errors else 0.0
    )


def fit_attention(planned: PlannedAttention, grid: BaseGrid, times: Times) -> AttentionPart:
    """Both fits of layers that attend alike; raises what `fit_shape` raises."""
    fits = [
        None if shape is None else fit_shape(shape, grid, times, decoding=decoding)
        for shape, decoding in ((planned.decode, True), (planned.prefill, False))
    ]
    return AttentionPart(planned.layers, *fits)


def fit_shape(shape: AttentionShape, grid: BaseGrid, times: Times, *, decoding: bool) -> AttentionFit:
    """Relative non-negative least squares of fixed + token·Q + pair·Q·entries, judged on held-out sizes.

    Raises
    ------
    BadInputError
        When too few sizes were timed.
    """
    fitting, judging = (
        [size for size in sizes if (shape, size) in times]
        for sizes in attention_sizes(grid, decoding=decoding)
    )
    if len(fitting) < LEAST_POINTS:
        raise BadInputError(
            f"{len(fitting)} sizes of attention were timed, {LEAST_POINTS} are needed",
            "free some memory of the GPU",
        )
    design, measured = _design(fitting), np.array([times[shape, size] for size in fitting])
    coefficients, _ = nnls(design / measured[:, None], np.ones(len(measured)))
    errors = [abs(float(_design([size])[0] @ coefficients) / times[shape, size] - 1.0) for size in judging]
    fixed, token, pair = (float(value) for value in coefficients)
    return AttentionFit(
        fixed_us=fixed,
        token_us=token,
        pair_us=pair,
        most_pairs=int(max(design[:, 2])),
        heldout_mape=float(np.mean(errors)) if errors else 0.0,
    )


def _design(sizes: list[AttentionSize]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """One, tokens, and pairs of a token and an entry: a token of a chunk sees what lies before the chunk's middle."""
    rows = [
        (1.0, tokens, tokens * (size.entries - (size.queries - 1) / 2))
        for size in sizes
        for tokens in (size.requests * size.queries,)
    ]
    return np.array(rows, dtype=np.float64)
