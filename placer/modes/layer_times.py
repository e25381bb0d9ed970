"""Layer times: what the MoE layers of replayed steps take where GPUs compute every expert, under any factors."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.profiler.factor import Factors

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LayerTimes:
    """Parts of S steps of one kind and size.

    Attributes
    ----------
    compute_us
        float [S, L], what GPUs compute.
    fetch_us
        float [S, L], what weights take over PCIe.
    overlapped
        Whether both run at once (a layer takes the longer), or the fetch comes first (the sum).
    """

    compute_us: Floats
    fetch_us: Floats
    overlapped: bool

    def step_us(self, factors: Factors) -> Floats:
        """Time of all MoE layers of every step: float [S]."""
        compute_us, fetch_us = factors.hot * self.compute_us, factors.transfer * self.fetch_us
        layers = np.maximum(compute_us, fetch_us) if self.overlapped else compute_us + fetch_us
        return np.asarray(layers.sum(axis=1))
