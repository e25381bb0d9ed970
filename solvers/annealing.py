"""Simulated annealing inside every layer at once, several chains per layer."""

from dataclasses import dataclass

import numpy as np

from placer.solvers.deadline import Deadline
from placer.solvers.layer_pool import LayerPool
from placer.solvers.layer_view import Float64s, LayerView
from placer.solvers.problem import Mask
from placer.solvers.side_sums import SideSums

HOTTEST, COLDEST = 0.4, 0.02
"""First and last temperature as shares of the layer's unproven part: moves far above it cannot pay."""
BATCH = 64
"""Turns whose random numbers are drawn together."""


@dataclass(frozen=True)
class AnnealingLength:
    """How far a run goes: candidates per layer, chains per layer, turns per chain."""

    candidates: int
    chains: int
    turns: int


def anneal(
    view: LayerView,
    sums: SideSums,
    pool: LayerPool,
    start: Mask,
    reduced_us: Float64s,
    price: float,
    unproven_us: Float64s,
    length: AnnealingLength,
    rng: np.random.Generator,
    deadline: Deadline,
) -> None:
    """Anneal ``length.chains`` copies of ``start`` (bool [L, E], mixed layers) and offer the best to ``pool``.

    A turn proposes, in every chain, an exchange of two candidates where they lie on different sides and
    a flip of the first otherwise; it is made when it lowers the layer's cost plus price, or with
    probability exp(-increase / temperature). ``unproven_us`` (float64 [L]) is the distance of the layer's
    best placement from its floor and sets the temperatures. Candidates are the experts with the smallest
    ``reduced_us`` (float64 [L, E], absolute).
    """
    L, _, E = view.shape
    F = min(length.candidates, E)
    C = length.chains
    N = L * C
    candidates = np.argsort(np.abs(reduced_us), axis=1, kind="stable")[:, :F]
    grid = np.arange(L)[:, None]
    layer = np.repeat(np.arange(L), C)
    # What turning a candidate hot, turning it cold and leaving it adds, one row each: a turn only looks up.
    vectors = sums.expert[grid, candidates].reshape(L * F, *sums.expert.shape[2:])
    vectors = np.concatenate([vectors, -vectors, np.zeros_like(vectors[:1])])
    linear = (sums.linear_us[grid, candidates] + price * view.expert_bytes[:, None]).ravel()
    linear = np.concatenate([linear, -linear, [0.0]])
    first_row, to_cold, stays = layer * F, L * F, 2 * L * F
    chain = np.arange(N)

    state = np.repeat(sums.of(start), C, axis=0)
    inside = np.repeat(np.take_along_axis(start, candidates, axis=1), C, axis=0)
    count = np.repeat(start.sum(axis=1), C)
    fewest, most = np.repeat(view.fewest, C), np.repeat(view.most, C)
    side = sums.cost_us(state, layer).astype(np.float64)
    line = np.zeros(N)
    best = np.zeros(N)
    best_inside = inside.copy()
    origin = side.copy()
    scale = np.repeat(np.maximum(unproven_us, 1e-6), C)
    proposed, second = np.empty_like(state), np.empty_like(state)
    for turn in range(length.turns):
        if turn % BATCH == 0:
            if deadline.passed():
                break
            picks = rng.integers(0, F, size=(2, BATCH, N))
            # exp(-increase / T) > u is increase < -T log(u): one logarithm for the whole batch.
            allowance = -np.log(rng.random((BATCH, N)))
        i, j = picks[0, turn % BATCH], picks[1, turn % BATCH]
        i_in, j_in = inside[chain, i], inside[chain, j]
        exchange = i_in != j_in
        row_i = first_row + i + to_cold * i_in
        row_j = np.where(exchange, first_row + j + to_cold * j_in, stays)
        np.take(vectors, row_i, axis=0, out=proposed, mode="clip")
        np.take(vectors, row_j, axis=0, out=second, mode="clip")
        proposed += second
        proposed += state
        proposed_side = sums.cost_us(proposed, layer).astype(np.float64)
        proposed_line = line + linear[row_i] + linear[row_j]
        proposed_count = count + np.where(exchange, 0, 1 - 2 * i_in)
        increase = (proposed_side - side) + (proposed_line - line)
        temperature = scale * (HOTTEST * (COLDEST / HOTTEST) ** (turn / length.turns))
        accepted = increase < temperature * allowance[turn % BATCH]
        accepted &= (proposed_count >= fewest) & (proposed_count <= most)
        taken = np.flatnonzero(accepted)
        state[taken] = proposed[taken]
        side[taken], line[taken], count[taken] = (
            proposed_side[taken],
            proposed_line[taken],
            proposed_count[taken],
        )
        inside[taken, i[taken]] ^= True
        both = taken[exchange[taken]]
        inside[both, j[both]] ^= True
        value = side[taken] - origin[taken] + line[taken]
        better = taken[value < best[taken]]
        best[better] = side[better] - origin[better] + line[better]
        best_inside[better] = inside[better]

    movable = np.flatnonzero(view.fewest <= view.most)
    for c in range(C):
        masks = start.copy()
        np.put_along_axis(masks, candidates, best_inside.reshape(L, C, F)[:, c], axis=1)
        pool.add(movable, masks[movable], view.cost_us(masks)[movable])
