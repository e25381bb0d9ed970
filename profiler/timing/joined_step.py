"""Layer-steps of a placement with both of their sides: which, their rows, and tokens that route that way."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placer.kernels.expert_mlp import SKIP
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.steps import Steps


@dataclass(frozen=True)
class JoinedStep:
    """One MoE layer of one step.

    Attributes
    ----------
    step, layer
        Indices into the steps, and into the MoE layers.
    hot_rows, cold_rows
        Rows of every active expert of either side, heaviest first.
    tokens
        Tokens of the step.
    """

    step: int
    layer: int
    hot_rows: tuple[int, ...]
    cold_rows: tuple[int, ...]
    tokens: int


def joined_steps(steps: Steps, hot: NDArray[np.bool_], *, seed: int) -> list[JoinedStep]:
    """Layer-steps of ``steps`` that give both sides rows under ``hot`` (bool [L, E]), in random order."""
    S, L, _ = steps.rows.shape
    generator = np.random.default_rng(seed)
    found = []
    for index in generator.permutation(S * L).tolist():
        step, layer = divmod(index, L)
        rows = steps.rows[step, layer]
        sides = [np.sort(rows[mask & (rows > 0)])[::-1].tolist() for mask in (hot[layer], ~hot[layer])]
        if all(sides):
            found.append(JoinedStep(step, layer, tuple(sides[0]), tuple(sides[1]), int(steps.tokens[step])))
    return found


def joined_routing(
    step: JoinedStep, shape: ExpertShape, generator: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Random ids of the hot and of the cold side, int64 [q, k] each: no expert is on both, no slot is used twice.

    Raises
    ------
    ValueError
        When the rows do not fit the tokens, or there are more active experts than experts.
    """
    rows = np.array((*step.hot_rows, *step.cold_rows))
    if len(rows) > shape.experts or rows.max() > step.tokens or rows.sum() > step.tokens * shape.top_k:
        raise ValueError(f"{len(rows)} experts with {rows.sum()} rows do not fit {step.tokens} tokens")
    experts = generator.permutation(shape.experts)[: len(rows)]
    order = generator.permutation(step.tokens)
    dealt = np.arange(rows.sum())
    ids = np.full((step.tokens, shape.top_k), SKIP, dtype=np.int64)
    # Dealt round the tokens, so that no token names an expert twice.
    ids[order[dealt % step.tokens], dealt // step.tokens] = np.repeat(experts, rows)
    is_hot = np.isin(ids, experts[: len(step.hot_rows)])
    hot_ids, cold_ids = np.where(is_hot, ids, SKIP), np.where(is_hot, SKIP, ids)
    return torch.from_numpy(hot_ids), torch.from_numpy(cold_ids)
