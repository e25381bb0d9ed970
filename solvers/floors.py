"""The best lower bound so far, layer by layer, and the steps that raise it."""

from dataclasses import dataclass, replace

import numpy as np

from placer.solvers.deadline import Deadline
from placer.solvers.decided import Decided, decide, nothing_decided
from placer.solvers.envelope import StepEnvelope, step_envelope
from placer.solvers.interior_point import iterates
from placer.solvers.layer_view import Float64s, LayerView
from placer.solvers.problem import Mask
from placer.solvers.relaxation import (
    MixedLayers,
    Multipliers,
    PureLayers,
    pure_layers,
    relax_mixed,
    total_bound,
)
from placer.solvers.relaxed_program import relaxed_program

PRICE_ROUNDS = 4
PROMISING = 0.25
"""Share of layer-steps with at most one open count from which counting is tried."""


@dataclass(frozen=True)
class Floors:
    """Lower bounds of every layer at one price.

    Attributes
    ----------
    bound_us
        Lower bound on the whole problem, constant excluded.
    price
        Microseconds per byte at which the layers were bounded.
    layer_us
        float64 [L], lower bound of every layer's cost plus price, pure or mixed.
    reduced_us
        float64 [L, E], reduced costs of the mixed layers at the price; 0 where decided.
    fraction
        float64 [L, E] in [0, 1], fractional placement of the relaxation.
    mixed
        The evaluation behind the reduced costs.
    """

    bound_us: float
    price: float
    layer_us: Float64s
    reduced_us: Float64s
    fraction: Float64s
    mixed: MixedLayers


class FloorBuilder:
    """Bounds one problem; every method returns `Floors` that hold. A bound of ``enough_us`` is not raised further."""

    def __init__(self, view: LayerView, deadline: Deadline, enough_us: float = np.inf) -> None:
        L, _, E = view.shape
        self.view = view
        self._deadline = deadline
        self._enough_us = enough_us
        self._open = nothing_decided(L, E)
        self._envelope = step_envelope(view, self._open)
        self._pure: PureLayers = pure_layers(view)
        self._can_mix: Mask = view.fewest <= view.most

    def trivial(self) -> Floors:
        """The bound of equal shares and a free budget: one evaluation."""
        L, S, E = self.view.shape
        multipliers = Multipliers(0.0, np.full((L, S), 0.5), np.zeros((L, S)))
        mixed = relax_mixed(self.view, self._envelope, self._open, multipliers)
        return self._floors(mixed, 0.0, np.full((L, E), 0.5))

    def relaxed(self, floors: Floors, *, columns: bool) -> Floors:
        """Close the relaxation over the price too; ``columns`` adds the counts of every layer-step.

        Where all-cold or all-hot layers come cheaper than mixed ones (charges that a pure layer saves),
        the price of the mixed relaxation is not the best one: then the price that maximises the bound at
        the shares found, and the shares at that price, are improved in turn.
        """
        best, mixed = self._close(self._open, self._envelope, floors, price=None, columns=columns)
        for _ in range(PRICE_ROUNDS):
            if mixed is None or not np.any(self._pure.best_at(best.price) <= mixed.floor_at(best.price)[0]):
                break
            price = self._best_price(mixed)
            better, again = self._close(self._open, self._envelope, best, price=price, columns=columns)
            gained = better.bound_us - best.bound_us
            best = better
            if again is None or gained <= 1e-6 * abs(best.bound_us):
                break
            mixed = again
        return best

    def at_price(self, price: float, *, columns: bool, floors: Floors) -> Floors:
        """Floors at a given price (the bound may be lower than that of ``floors``, which starts the search)."""
        worthless = replace(floors, bound_us=-np.inf)
        return self._close(self._open, self._envelope, worthless, price=price, columns=columns)[0]

    def columns_promise(self, decided: Decided | None = None) -> bool:
        """Whether counting experts is likely to raise the bound: few counts leave the longer side open."""
        envelope = self._envelope if decided is None else step_envelope(self.view, decided)
        return float((envelope.ambiguous <= 1).sum()) > PROMISING * envelope.ambiguous.size

    def decided(self, floors: Floors, cutoff_us: Float64s) -> Decided:
        """Experts that no placement below ``cutoff_us`` [L] can hold on the other side, at the price of ``floors``.

        Only for floors whose layer bounds and reduced costs come from one evaluation (`at_price`).
        """
        return decide(self._open, floors.reduced_us, cutoff_us - floors.layer_us)

    def within(self, floors: Floors, decided: Decided, cutoff_us: Float64s) -> tuple[Floors, Decided]:
        """Raise the floors with the ``decided`` experts taken as given and counted in columns.

        A layer's floor becomes the least of its cutoff, its pure placements and the bound on the mixed
        placements that agree with ``decided``, and never falls. The reduced costs decide more experts.
        """
        envelope = step_envelope(self.view, decided)
        start = replace(floors, bound_us=-np.inf)
        raised, mixed = self._close(decided, envelope, start, price=floors.price, columns=True)
        if mixed is None:
            return floors, decided
        more = decide(decided, raised.reduced_us, cutoff_us - raised.layer_us)
        return self.with_layers(
            floors, np.maximum(floors.layer_us, np.minimum(cutoff_us, raised.layer_us))
        ), more

    def with_layers(self, floors: Floors, layer_us: Float64s) -> Floors:
        """``floors`` with other layer bounds at the same price."""
        bound = total_bound(layer_us, floors.price, self.view.budget_bytes)
        return replace(floors, bound_us=bound, layer_us=layer_us)

    def pure_at(self, price: float) -> Float64s:
        """Exact cost plus price of the better pure placement of every layer: float64 [L]."""
        return self._pure.best_at(price)

    def _close(
        self,
        decided: Decided,
        envelope: StepEnvelope,
        start: Floors,
        *,
        price: float | None,
        columns: bool,
    ) -> tuple[Floors, MixedLayers | None]:
        """Walk the central path of one relaxed program and keep the multipliers of the best bound."""
        best, best_mixed = start, None
        if not self._can_mix.any() or not decided.free.any():
            return best, None
        program = relaxed_program(
            self.view,
            decided,
            envelope=envelope if columns else None,
            price=price,
            layers=self._can_mix,
            budget_bytes=self.view.budget_bytes,
        )
        stale = 0
        for point in iterates(program, price=price):
            mixed = relax_mixed(self.view, envelope, decided, point.multipliers)
            found = self._floors(mixed, point.multipliers.price, point.fraction)
            # Late iterates move by rounding only; three without progress end the walk.
            progress = found.bound_us > best.bound_us + 1e-6 * abs(best.bound_us)
            stale = 0 if progress or not np.isfinite(best.bound_us) else stale + 1
            if found.bound_us > best.bound_us:
                best, best_mixed = found, mixed
            closed = point.gap_us <= 5e-5 * abs(found.bound_us)
            if closed or (stale >= 3 and point.gap_us <= 1e-2 * abs(found.bound_us)):
                break
            if best.bound_us >= self._enough_us or self._deadline.passed():
                break
        return best, best_mixed

    def _floors(self, mixed: MixedLayers, price: float, fraction: Float64s) -> Floors:
        floor, _ = mixed.floor_at(price)
        layer = np.minimum(floor, self._pure.best_at(price))
        return Floors(
            bound_us=total_bound(layer, price, self.view.budget_bytes),
            price=price,
            layer_us=layer,
            reduced_us=mixed.reduced_at(price),
            fraction=fraction,
            mixed=mixed,
        )

    def _best_price(self, mixed: MixedLayers) -> float:
        """The price that maximises the bound at fixed shares: bisection on the bytes that it leaves in use."""

        def bytes_at(price: float) -> int:
            floor, count = mixed.floor_at(price)
            cold, hot = self._pure.cold_us, self._pure.hot_us + price * self._pure.hot_bytes
            used = np.where(floor <= np.minimum(cold, hot), count * self.view.expert_bytes, 0)
            used = np.where((hot < floor) & (hot < cold), self._pure.hot_bytes, used)
            return int(used.sum())

        low, high = 0.0, 1.0 / float(self.view.expert_bytes.max())
        if bytes_at(low) <= self.view.budget_bytes:
            return low
        for _ in range(80):
            if bytes_at(high) <= self.view.budget_bytes:
                break
            low, high = high, 2.0 * high
        for _ in range(50):
            middle = 0.5 * (low + high)
            if bytes_at(middle) <= self.view.budget_bytes:
                high = middle
            else:
                low = middle
        return high
