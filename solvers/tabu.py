"""Tabu search inside every layer at once: the best exchange of a hot expert against a cold one, step by step."""

from dataclasses import dataclass

import numpy as np

from placer.solvers.deadline import Deadline
from placer.solvers.layer_pool import LayerPool
from placer.solvers.layer_view import Float64s, LayerView
from placer.solvers.problem import Mask
from placer.solvers.side_sums import SideSums

DUMMIES = 3
TENURE = 6
"""Exchanges for which an expert stays where it was just put; a random 0 to 5 is added against cycles."""
TOLERANCE_US = 1e-4
FORBIDDEN = np.float32(1e30)


@dataclass(frozen=True)
class TabuLength:
    """How far a search goes: candidates per side and layer, and exchanges per layer."""

    candidates: int
    exchanges: int


def tabu_search(
    view: LayerView,
    sums: SideSums,
    pool: LayerPool,
    start: Mask,
    reduced_us: Float64s,
    price: float,
    length: TabuLength,
    rng: np.random.Generator,
    deadline: Deadline,
) -> None:
    """Search from ``start`` (bool [L, E]) for mixed layers of least cost plus price; fill ``pool``.

    Only the experts with the smallest ``reduced_us`` (float64 [L, E], absolute) of each side take part:
    the others are settled by the relaxation in all but rare cases. All exchanges between the candidates
    of the two sides, dummies included, are evaluated exactly in one array operation per candidate, and
    the best that is not tabu (or beats the best seen) is made even when it costs more (Glover, Tabu
    search part I, ORSA J. Computing 1989).
    """
    L, _, E = view.shape
    rows = np.arange(L)
    linear = sums.linear_us.copy()
    linear[:, :E] += price * view.expert_bytes[:, None]
    hot = _into_bounds(start, reduced_us, view)
    state = sums.of(hot)
    ranks = sums.cold_ranks(hot)
    here = sums.cost_us(state, rows, None if ranks is None else ranks.first_us)
    value = here.astype(np.float64) + np.where(hot, linear[:, :E], 0.0).sum(axis=1)
    count = hot.sum(axis=1)
    movable = view.fewest <= view.most
    pool.add(rows[movable], hot[movable], _unpriced(view, sums, value, count, price)[movable])

    out_slots, in_slots = _slots(hot, reduced_us, length.candidates)
    width_out, width_in = out_slots.shape[1], in_slots.shape[1]
    grid = rows[:, None]
    out_vector, in_vector = sums.expert[grid, out_slots], sums.expert[grid, in_slots]
    out_linear, in_linear = linear[grid, out_slots], linear[grid, in_slots]
    out_until = np.zeros((L, width_out), dtype=np.int64)
    in_until = np.zeros((L, width_in), dtype=np.int64)
    best = value.copy()
    for turn in range(1, length.exchanges + 1):
        if deadline.passed():
            return
        heavy = None
        if sums.heavy_us is not None and (ranks := sums.cold_ranks(hot)) is not None:
            heavy = sums.heavy_us[grid, out_slots], ranks.without(in_slots)
        table = sums.exchange_cost_us(state, out_vector, in_vector, heavy)
        here = sums.cost_us(state, rows, None if ranks is None else ranks.first_us)
        change = (table - here[:, None, None]) + (in_linear[:, None, :] - out_linear[:, :, None])
        out_dummy, in_dummy = (out_slots == E)[:, :, None], (in_slots == E)[:, None, :]
        forbidden = (out_until >= turn)[:, :, None] | (in_until >= turn)[:, None, :]
        forbidden &= (value - best)[:, None, None] + change > -TOLERANCE_US
        forbidden |= out_dummy & in_dummy
        forbidden |= out_dummy & ~in_dummy & (count >= view.most)[:, None, None]
        forbidden |= ~out_dummy & in_dummy & (count <= view.fewest)[:, None, None]
        forbidden |= ~movable[:, None, None]
        flat = np.where(forbidden, FORBIDDEN, change).reshape(L, -1)
        chosen = flat.argmin(axis=1)
        moving = np.flatnonzero(flat[rows, chosen] < FORBIDDEN)
        if moving.size == 0:
            return
        i, j = chosen[moving] // width_in, chosen[moving] % width_in
        leaving, entering = out_slots[moving, i], in_slots[moving, j]
        state[moving] += in_vector[moving, j] - out_vector[moving, i]
        value[moving] += flat[moving, chosen[moving]]
        out_slots[moving, i], in_slots[moving, j] = entering, leaving
        out_vector[moving, i], in_vector[moving, j] = in_vector[moving, j], out_vector[moving, i]
        out_linear[moving, i], in_linear[moving, j] = in_linear[moving, j], out_linear[moving, i]
        tenure = turn + TENURE + rng.integers(0, 6, size=(2, L))[:, moving]
        out_until[moving, i] = np.where(entering == E, 0, tenure[0])
        in_until[moving, j] = np.where(leaving == E, 0, tenure[1])
        real = leaving < E
        hot[moving[real], leaving[real]] = False
        real = entering < E
        hot[moving[real], entering[real]] = True
        count[moving] += (entering < E).astype(np.int64) - (leaving < E)
        best = np.minimum(best, value)
        pool.add(moving, hot[moving], _unpriced(view, sums, value, count, price)[moving])


def _unpriced(
    view: LayerView,
    sums: SideSums,
    value: Float64s,
    count: np.ndarray[tuple[int], np.dtype[np.int64]],
    price: float,
) -> Float64s:
    return value + sums.constant_us - price * view.expert_bytes * count


def _into_bounds(start: Mask, reduced_us: Float64s, view: LayerView) -> Mask:
    """``start`` with the fewest flips, cheapest first, that bring every count into its mixed bounds."""
    hot = start.copy()
    for layer in np.flatnonzero(view.fewest <= view.most):
        count = int(hot[layer].sum())
        missing, excess = int(view.fewest[layer]) - count, count - int(view.most[layer])
        if missing > 0:
            order = np.argsort(np.where(hot[layer], np.inf, reduced_us[layer]), kind="stable")
            hot[layer, order[:missing]] = True
        elif excess > 0:
            order = np.argsort(np.where(hot[layer], -reduced_us[layer], np.inf), kind="stable")
            hot[layer, order[:excess]] = False
    return hot


def _slots(
    hot: Mask, reduced_us: Float64s, candidates: int
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.int64]], np.ndarray[tuple[int, int], np.dtype[np.int64]]]:
    """Expert ids [L, candidates + DUMMIES] that may leave and may enter the hot side; id E is a dummy."""
    L, E = hot.shape
    keen = np.abs(reduced_us)
    sides = []
    for member in (hot, ~hot):
        order = np.argsort(np.where(member, keen, np.inf), axis=1, kind="stable")[:, : min(candidates, E)]
        order = np.where(np.take_along_axis(member, order, axis=1), order, E)
        sides.append(np.concatenate([order, np.full((L, DUMMIES), E)], axis=1).astype(np.int64))
    return sides[0], sides[1]
