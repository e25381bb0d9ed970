"""Deferred experts: CPU work of one layer that runs beside the next."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def deferred_layers_us(
    hot_us: Floats, immediate_us: Floats, deferred_us: Floats, gap_us: Floats
) -> NDArray[np.float64]:
    """How long each layer holds up its step, from the start of its experts to their merge: float [S, L].

    The CPU has one queue (kt-kernel 0.7.2, experts_base.py): a layer's immediate experts run when those that the
    layer before deferred are done, its own deferred ones after that; the GPU waits for the immediate ones alone.

    Parameters
    ----------
    hot_us, immediate_us, deferred_us
        float [S, L], work of the GPU, of the CPU at once (copies included), and of the CPU that is deferred.
    gap_us
        float [L], time between a layer's merge and the next one's experts.
    """
    S, L = hot_us.shape
    layers_us = np.empty((S, L))
    clock_us, cpu_free_us = np.zeros(S), np.zeros(S)
    for layer in range(L):
        merged_us = np.maximum(clock_us, cpu_free_us) + immediate_us[:, layer]
        cpu_free_us = merged_us + deferred_us[:, layer]
        merged_us = np.maximum(clock_us + hot_us[:, layer], merged_us)
        layers_us[:, layer] = merged_us - clock_us
        clock_us = merged_us + gap_us[layer]
    return layers_us
