"""Experts whose side is settled for the rest of a solve."""

from dataclasses import dataclass

import numpy as np

from placer.solvers.layer_view import Float64s
from placer.solvers.problem import Mask


@dataclass(frozen=True)
class Decided:
    """Experts taken as hot or cold; bool [L, E] each, never both at once."""

    hot: Mask
    cold: Mask

    @property
    def free(self) -> Mask:
        """Experts still open: bool [L, E]."""
        return ~(self.hot | self.cold)


def nothing_decided(layers: int, experts: int) -> Decided:
    """Every expert open."""
    return Decided(np.zeros((layers, experts), dtype=bool), np.zeros((layers, experts), dtype=bool))


def decide(decided: Decided, reduced_us: Float64s, room_us: Float64s) -> Decided:
    """Settle the experts that no placement below the cutoff of their layer can hold on the other side.

    ``reduced_us`` [L, E] are reduced costs, bounds on the count priced in, at multipliers whose layer
    bound lies ``room_us`` [L] below the cutoff. The layer bound takes every expert to the side that its
    reduced cost speaks for; moving expert e to the other raises it by |reduced cost|, so where that
    exceeds the room, every placement with e there costs more than the cutoff (reduced-cost fixing,
    textbook branch-and-bound).
    """
    room = np.maximum(room_us, 0.0)[:, None] * (1 + 1e-9) + 1e-9
    return Decided(
        hot=decided.hot | (decided.free & (reduced_us < -room)),
        cold=decided.cold | (decided.free & (reduced_us > room)),
    )
