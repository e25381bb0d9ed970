"""What a local search keeps per layer-step, and what a change of it costs: small float32 tables."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.solvers.layer_view import Float64s, Ints, LayerView
from placer.solvers.problem import FixedCharge, Mask

Float32s = NDArray[np.float32]


@dataclass(frozen=True)
class ColdRanks:
    """The two largest entries of ``heavy_us`` among the cold experts of every layer-step.

    ``first_us`` and ``second_us`` are float32 [L, S], ``first`` int64 [L, S] the expert behind the first.
    """

    first_us: Float32s
    second_us: Float32s
    first: Ints

    def without(self, experts: Ints) -> Float32s:
        """The largest once each of ``experts`` (int64 [L, B]) is not cold: float32 [L, B, S]."""
        leads = self.first[:, None, :] == experts[:, :, None]
        return np.where(leads, self.second_us[:, None, :], self.first_us[:, None, :])


@dataclass(frozen=True)
class SideSums:
    """Sums per layer-step that a placement determines, P numbers each, and the cost they stand for.

    Turning expert e hot adds ``expert[l, e]`` to the sums of its layer, turning it cold takes it off.
    Index E is a dummy without cost, so that a single flip is an exchange with a dummy.

    Two forms. Where no charge can come or go in a way that matters, P = 1: the sum is how far the hot
    side is ahead, and cost = sum of max(ahead, 0) + linear. Otherwise P = 2: the sums are the hot side and
    the cold side, and charges are looked up: cost = sum of max(hot + h [hot > 0], cold + c [cold > 0]) +
    linear. A max-term takes the second form, and what its heaviest cold expert asks for is handed in beside
    the sums. Both give a mixed layer's cost up to float32 rounding.

    Attributes
    ----------
    expert
        float32 [L, E + 1, P, S].
    all_cold
        float64 [L, P, S], sums with no hot expert, certain charges included.
    linear_us
        float64 [L, E + 1].
    constant_us
        float64 [L], to be added to get the exact cost of a layer.
    hot_charge, cold_charge
        float32 [L, S], charges to look up (P = 2); ``hot_least``, ``cold_least`` float32 [L, S] tell an
        empty side from one with a member.
    heavy_us
        float32 [L, E + 1, S], what each expert makes the cold side take at least while it is cold, charges
        aside; None without a max-term. ``cold_certain_us`` float32 [L, S] are the certain charges.
    """

    expert: Float32s
    all_cold: Float64s
    linear_us: Float64s
    constant_us: Float64s
    hot_charge: Float32s | None
    cold_charge: Float32s | None
    hot_least: Float32s | None
    cold_least: Float32s | None
    heavy_us: Float32s | None = None
    cold_certain_us: Float32s | None = None

    def of(self, hot: Mask) -> Float32s:
        """Sums of the placement ``hot`` (bool [L, E]): float32 [L, P, S]."""
        L, _, P, S = self.expert.shape
        flat = self.expert[:, :-1].reshape(L, hot.shape[1], P * S)
        gained = np.matmul(hot[:, None, :].astype(np.float32), flat)[:, 0].reshape(L, P, S)
        return np.asarray(self.all_cold + gained, dtype=np.float32)

    def cold_ranks(self, hot: Mask) -> ColdRanks | None:
        """Ranks under the placement ``hot`` (bool [L, E]); None without a max-term."""
        if self.heavy_us is None:
            return None
        L, _, S = self.heavy_us.shape
        # The dummy's zero row is always there, and once more for the second of a layer of one expert.
        cold = np.where(hot[:, :, None], np.float32(0), self.heavy_us[:, :-1])
        cold = np.concatenate([cold, np.zeros((L, 2, S), dtype=np.float32)], axis=1)
        first = cold.argmax(axis=1)
        first_us = np.take_along_axis(cold, first[:, None], axis=1)[:, 0]
        np.put_along_axis(cold, first[:, None], np.float32(0), axis=1)
        return ColdRanks(first_us, cold.max(axis=1), first)

    def exchange_cost_us(
        self,
        sums: Float32s,
        leaving: Float32s,
        entering: Float32s,
        heavy: tuple[Float32s, Float32s] | None = None,
    ) -> Float32s:
        """Cost after every exchange of one of ``leaving`` against one of ``entering``, linear part excluded.

        ``sums`` is [L, P, S]; ``leaving`` [L, A, P, S] and ``entering`` [L, B, P, S] are rows of ``expert``;
        the result is float32 [L, A, B]. ``heavy`` are the rows of ``heavy_us`` of the leaving [L, A, S] and
        `ColdRanks.without` of the entering [L, B, S].
        """
        L, A = leaving.shape[:2]
        B, S = entering.shape[1], entering.shape[3]
        table = np.empty((L, A, B), dtype=np.float32)
        layer = np.arange(L)[:, None]
        ones, buffer = np.ones(S, dtype=np.float32), np.empty((L, B, S), dtype=np.float32)
        for i in range(A):
            without = (sums - leaving[:, i])[:, None]
            if self.hot_charge is None:
                # The common form, without temporaries: this loop is where a search spends its time.
                np.add(entering[:, :, 0], without[:, :, 0], out=buffer)
                np.maximum(buffer, 0, out=buffer)
                np.matmul(buffer, ones, out=table[:, i])
            else:
                heaviest = None if heavy is None else np.maximum(heavy[1], heavy[0][:, i, None])
                table[:, i] = self.cost_us(entering + without, layer, heaviest)
        return table

    def cost_us(self, sums: Float32s, layer: Ints, heaviest_us: Float32s | None = None) -> Float32s:
        """Cost of sums [..., P, S] of the layers ``layer`` (broadcast to [...]), linear part excluded: [...].

        ``heaviest_us`` [..., S] is the largest of ``heavy_us`` among the cold experts.
        """
        if self.hot_charge is None or self.cold_charge is None:
            ahead = np.maximum(sums[..., 0, :], 0)
            return np.asarray(ahead @ np.ones(ahead.shape[-1], dtype=np.float32))
        assert self.hot_least is not None
        assert self.cold_least is not None
        hot, cold = sums[..., 0, :], sums[..., 1, :]
        if heaviest_us is not None and self.cold_certain_us is not None:
            cold = np.maximum(cold, self.cold_certain_us[layer] + heaviest_us)
        hot = hot + self.hot_charge[layer] * (hot > self.hot_least[layer])
        cold = cold + self.cold_charge[layer] * (cold > self.cold_least[layer])
        longer = np.maximum(hot, cold)
        return np.asarray(longer @ np.ones(longer.shape[-1], dtype=np.float32))


def side_sums(view: LayerView) -> SideSums:
    """Choose the form and fill the tables."""
    L, S, _ = view.shape
    hot_total, cold_total = view.hot_us.sum(axis=2), view.cold_us.sum(axis=2)
    by_active = FixedCharge.ANY_ACTIVE
    # A side that can never have an active member never pays an ANY_ACTIVE charge.
    hot_charge = view.hot_fixed_us * ((hot_total > 0) | (view.hot_fixed_when is not by_active))
    cold_charge = view.cold_fixed_us * ((cold_total > 0) | (view.cold_fixed_when is not by_active))
    # Dropping a charge shows only when its side is empty and the charge alone is longer than the other side.
    hot_matters = view.hot_fixed_when is by_active and bool(np.any(hot_charge > cold_total + cold_charge))
    cold_matters = view.cold_fixed_when is by_active and bool(np.any(cold_charge > hot_total + hot_charge))
    linear = np.concatenate([view.linear_us, np.zeros((L, 1))], axis=1)
    dummy = np.zeros((L, 1, S), dtype=np.float32)
    hot_table = np.concatenate([view.hot_us.transpose(0, 2, 1).astype(np.float32), dummy], axis=1)
    cold_table = np.concatenate([view.cold_us.transpose(0, 2, 1).astype(np.float32), dummy], axis=1)
    factor = view.heaviest_factor
    if not (hot_matters or cold_matters or factor is not None):
        linear[:, :-1] -= view.cold_us.sum(axis=1)
        return SideSums(
            expert=np.ascontiguousarray((hot_table + cold_table)[:, :, None, :]),
            all_cold=(hot_charge - cold_charge - cold_total)[:, None, :],
            linear_us=linear,
            constant_us=(cold_charge + cold_total).sum(axis=1),
            hot_charge=None,
            cold_charge=None,
            hot_least=None,
            cold_least=None,
        )
    hot_looked_up = hot_charge if view.hot_fixed_when is by_active else np.zeros((L, S))
    cold_looked_up = cold_charge if view.cold_fixed_when is by_active else np.zeros((L, S))
    hot_certain, cold_certain = hot_charge - hot_looked_up, cold_charge - cold_looked_up
    return SideSums(
        expert=np.ascontiguousarray(np.stack([hot_table, -cold_table], axis=2)),
        all_cold=np.stack([hot_certain, cold_certain + cold_total], axis=1),
        linear_us=linear,
        constant_us=np.zeros(L),
        hot_charge=hot_looked_up.astype(np.float32),
        cold_charge=cold_looked_up.astype(np.float32),
        hot_least=(hot_certain + _half_least(view.hot_us)).astype(np.float32),
        cold_least=(cold_certain + _half_least(view.cold_us)).astype(np.float32),
        heavy_us=None if factor is None else cold_table * factor.astype(np.float32),
        cold_certain_us=None if factor is None else cold_certain.astype(np.float32),
    )


def _half_least(cost_us: Float64s) -> Float64s:
    """Half the smallest positive cost of every layer-step: float64 [L, S]."""
    least = np.where(cost_us > 0, cost_us, np.inf).min(axis=2)
    return np.where(np.isfinite(least), least / 2, 0.0)
