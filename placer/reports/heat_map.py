"""Every expert of every layer: hot or cold, and what it is worth to have it hot."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.placement import PlacementDocument
from placer.solvers.problem import Mask

SHOWN_QUANTILE = 0.98
"""Values above this quantile share the strongest colour: a few heavy experts would leave all others pale."""


@dataclass(frozen=True)
class HeatMap:
    """Hot experts and their values.

    Attributes
    ----------
    layers
        Checkpoint indices of the rows.
    hot
        bool [L, E].
    value_us
        float32 [L, E]: microseconds ``per_token`` that an expert saves by being hot, all others staying where
        they are. None where the placement does not state them.
    """

    layers: tuple[int, ...]
    hot: Mask
    value_us: NDArray[np.float32] | None
    per_token: str = "per output token"

    @property
    def strongest_us(self) -> float:
        """Value from which on colours no longer change; 1 where nothing is worth anything."""
        if self.value_us is None:
            return 1.0
        candidates = (float(np.quantile(self.value_us, SHOWN_QUANTILE)), float(self.value_us.max()))
        return next((value for value in candidates if value > 0), 1.0)

    def side(self, hot: bool) -> NDArray[np.float32]:
        """Values of the hot (or cold) experts, float32 [L, E], NaN for all others; 1 where none are stated."""
        values = np.ones(self.hot.shape, dtype=np.float32) if self.value_us is None else self.value_us
        return np.where(self.hot == hot, values, np.float32(np.nan))


def heat_map(document: PlacementDocument) -> HeatMap:
    """The hot experts of ``document`` with the values that its section ``sensitivity`` states."""
    layers = document.model.layers
    known = document.sensitivity
    values = (
        None
        if known is None
        else np.array([known.value_us[str(layer)] for layer in layers], dtype=np.float32)
    )
    return HeatMap(layers, document.hot_mask(), values, document.solver.per_token)
