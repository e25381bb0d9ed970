"""The linear program whose dual values are the multipliers of the bound."""

from dataclasses import dataclass

import numpy as np

from placer.solvers.decided import Decided
from placer.solvers.envelope import StepEnvelope
from placer.solvers.layer_view import Float64s, LayerView
from placer.solvers.problem import Mask

COLUMNS = 24
"""Counts k kept per layer-step; beyond that, those farthest from the crossing of the two sides go."""


@dataclass(frozen=True)
class RelaxedProgram:
    """Minimise cost over fractional x, with every max() as two inequalities.

        min   sum_le cost_us x + sum_ls over + sum_lsj column_cost_us mix
        s.t.  gain_us x + column_gain_us . mix - over + under = - offset_us     (per layer-step)
              active x - column_count . mix = 0                               (per layer-step, if columns)
              sum_j mix = 1                                                   (per layer-step, if columns)
              sum_e x between fewest and most                                 (per layer, if limited)
              sum_le size x <= room                                           (if room is given)
              0 <= x <= 1; over, under, mix >= 0

    ``over`` is what the hot side takes beyond the cold side, and the cold side is in the costs. ``mix``
    spreads a layer-step over the counts of its `StepEnvelope`. Minus the dual value of the first row is
    the share of the hot side, minus that of the second the tilt, of the last the price.

    Attributes
    ----------
    rows
        float64 [L, R, E]: gain_us (R = S), followed by the scaled activity rows when there are columns
        (R = 2 S), followed by one row of ones when counts are limited.
    row_scale_us
        float64 [L, S], by which the activity rows were multiplied.
    size
        float64 [L], bytes of an expert in units of the largest; ``byte_unit`` is that largest.
    """

    rows: Float64s
    offset_us: Float64s
    cost_us: Float64s
    free: Mask
    column_count: Float64s | None
    column_gain_us: Float64s | None
    column_cost_us: Float64s | None
    row_scale_us: Float64s
    fewest: Float64s | None
    most: Float64s | None
    size: Float64s
    byte_unit: float
    room: float | None
    gap_scale_us: float


def relaxed_program(
    view: LayerView,
    decided: Decided,
    *,
    envelope: StepEnvelope | None,
    price: float | None,
    layers: Mask | None = None,
    budget_bytes: int | None = None,
) -> RelaxedProgram:
    """Write the program of the mixed layers.

    ``envelope`` adds its columns. With ``price`` bytes cost that much and there is no budget; without,
    ``budget_bytes`` bounds them (it is ignored when everything fits). ``layers`` (bool [L]) leaves out
    the other layers' terms.
    """
    L, _, _ = view.shape
    chosen = np.ones(L, dtype=bool) if layers is None else layers
    free = decided.free & chosen[:, None]
    masked = free[:, None, :]
    settled_hot = np.einsum("lse,le->ls", view.hot_us, (decided.hot & chosen[:, None]).astype(np.float64))
    settled_cold = np.einsum("lse,le->ls", view.cold_us, (~decided.hot & chosen[:, None]).astype(np.float64))
    offset = settled_hot - settled_cold
    cost = view.linear_us - view.cold_us.sum(axis=1)
    byte_unit = float(view.expert_bytes.max())
    size = view.expert_bytes / byte_unit
    if price is not None:
        cost = cost + price * view.expert_bytes[:, None]
    cost = np.where(free, cost, 0.0)

    settled = decided.hot.sum(axis=1)
    fewest, most = view.fewest - settled, np.minimum(view.most - settled, free.sum(axis=1))
    # A layer that only has to be neither all cold nor all hot needs no row of its own.
    limited = bool(np.any((fewest > 1) | (most < free.sum(axis=1) - 1)))

    blocks = [np.where(masked, view.hot_us + view.cold_us, 0.0)]
    mean_gain = blocks[0].sum(axis=2) / np.maximum((blocks[0] > 0).sum(axis=2), 1)
    scale = np.maximum(mean_gain, 1e-9)
    columns: tuple[Float64s, Float64s, Float64s] | None = None
    if envelope is None:
        offset = offset + np.where(chosen[:, None], view.hot_fixed_us - view.cold_fixed_us, 0.0)
    else:
        columns = _columns(envelope, chosen)
        blocks.append((blocks[0] > 0) * scale[:, :, None])
    if limited:
        blocks.append(free[:, None, :].astype(np.float64))
    room = None
    if price is None and budget_bytes is not None:
        left = (
            budget_bytes - int((view.expert_bytes * (decided.hot & chosen[:, None]).sum(axis=1)).sum())
        ) / byte_unit
        if left < float((size * free.sum(axis=1)).sum()):
            # An interior needs some room; the bound is evaluated with the true budget.
            room = max(left, float((size * (np.maximum(fewest, 0) + 0.05))[chosen].sum()))
    return RelaxedProgram(
        rows=blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1),
        offset_us=offset,
        cost_us=cost,
        free=free,
        column_count=None if columns is None else columns[0],
        column_gain_us=None if columns is None else columns[1],
        column_cost_us=None if columns is None else columns[2],
        row_scale_us=scale,
        # An interior needs some width; the bound is evaluated with the true limits.
        fewest=np.maximum(fewest, 0) - 0.05 if limited else None,
        most=np.maximum(most, np.maximum(fewest, 0)) + 0.05 if limited else None,
        size=size,
        byte_unit=byte_unit,
        room=room,
        gap_scale_us=float(np.abs(offset).sum() + mean_gain.sum()) / max(offset.size, 1),
    )


def _columns(envelope: StepEnvelope, chosen: Mask) -> tuple[Float64s, Float64s, Float64s]:
    """Counts, gains (hot minus cold extra) and costs (cold extra) of up to `COLUMNS` k per layer-step."""
    L, S, wide = envelope.hot_extra_us.shape
    ks = np.broadcast_to(np.arange(wide), (L, S, wide))
    last = envelope.free_active[:, :, None]
    if wide > COLUMNS:
        cold_longer = envelope.hot_extra_us > envelope.cold_extra_us
        crossing = cold_longer.sum(axis=2, keepdims=True) + envelope.ambiguous[:, :, None] // 2
        inner = np.clip(crossing - COLUMNS // 2, 1, np.maximum(last - COLUMNS + 2, 1)) + np.arange(
            COLUMNS - 2
        )
        ends = np.concatenate([np.zeros_like(last), last], axis=2)
        ks = np.minimum(np.concatenate([ends[:, :, :1], inner, ends[:, :, 1:]], axis=2), last)
    hot_extra = np.take_along_axis(envelope.hot_extra_us, ks, axis=2)
    cold_extra = np.take_along_axis(envelope.cold_extra_us, ks, axis=2)
    # Impossible counts repeat the last possible one: a duplicate column changes nothing.
    ks = np.minimum(ks, last)
    hot_extra = np.where(
        np.isfinite(hot_extra), hot_extra, np.take_along_axis(envelope.hot_extra_us, last, axis=2)
    )
    cold_extra = np.where(
        np.isfinite(cold_extra), cold_extra, np.take_along_axis(envelope.cold_extra_us, last, axis=2)
    )
    on = chosen[:, None, None]
    return (
        np.where(on, ks, 0).astype(np.float64),
        np.where(on, hot_extra - cold_extra, 0.0),
        np.where(on, cold_extra, 0.0),
    )
