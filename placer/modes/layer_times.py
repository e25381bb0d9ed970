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
    call_us
        float [S, 1], what of computing passes before a weight is read; an overlapped fetch starts after it.
    """

    compute_us: Floats
    fetch_us: Floats
    overlapped: bool
    call_us: Floats | float = 0.0

    def step_us(self, factors: Factors) -> Floats:
        """Time of all MoE layers of every step: float [S]."""
        compute_us, fetch_us = factors.hot * self.compute_us, factors.transfer * self.fetch_us
        if not self.overlapped:
            return np.asarray((compute_us + fetch_us).sum(axis=1))
        return np.asarray(np.maximum(compute_us, factors.hot * self.call_us + fetch_us).sum(axis=1))
