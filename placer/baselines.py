"""The placements that users run today: kt-kernel's own strategies, and equal N by frequency."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from placer.solvers.problem import Mask

Share = NDArray[np.integer] | NDArray[np.floating]
"""[L, E], how much each expert is selected (counts or shares); only its order matters."""

Baseline = Callable[[Share, int], Mask]
"""(share [L, E], number of hot experts) -> bool [L, E]. More hot experts never make one cold."""

RANDOM_SEED = 42
"""The seed that sglang-kt 0.7.2 fixes for its ``random`` strategy (layers/moe/kt_ep_wrapper.py)."""


def frequency(share: Share, hot_total: int) -> Mask:
    """The globally most selected experts (``frequency``; kt_kernel/experts_base.py).

    The runtime breaks ties arbitrarily; here the earlier layer and the smaller id win.
    """
    mask = np.zeros(share.size, dtype=np.bool_)
    mask[_ranking(share.reshape(-1))[: _clamped(share, hot_total)]] = True
    return mask.reshape(share.shape)


def frequency_per_layer(share: Share, hot_total: int) -> Mask:
    """The N most selected experts of each layer, N = hot_total // L: what careful users run today.

    An equal N leaves a remainder of up to L - 1 experts unused.
    """
    L, E = share.shape
    mask = np.zeros((L, E), dtype=np.bool_)
    for layer in range(L):
        mask[layer, _ranking(share[layer])[: _clamped(share, hot_total) // L]] = True
    return mask


def uniform(share: Share, hot_total: int) -> Mask:
    """Experts 0 to N-1 of each layer (``uniform``, the runtime's default).

    The first ``hot_total % L`` layers take one more (generate_uniform_masks in kt_ep_wrapper.py).
    """
    L, E = share.shape
    per_layer, remainder = divmod(_clamped(share, hot_total), L)
    hot = per_layer + (np.arange(L) < remainder)
    return np.asarray(np.arange(E) < hot[:, None])


def front_loading(share: Share, hot_total: int) -> Mask:
    """Whole layers from the first on (``front-loading``; generate_front_loading_masks)."""
    return np.asarray((np.arange(share.size) < _clamped(share, hot_total)).reshape(share.shape))


def random(share: Share, hot_total: int) -> Mask:
    """The runtime's ``random`` strategy: the same experts as generate_random_masks with seed 42."""
    # Only torch's own generator gives the runtime's permutation; loading it takes seconds, and little else needs it.
    import torch  # noqa: PLC0415

    generator = torch.Generator(device="cpu").manual_seed(RANDOM_SEED)
    order = torch.randperm(share.size, generator=generator).numpy()
    mask = np.zeros(share.size, dtype=np.bool_)
    mask[order[: _clamped(share, hot_total)]] = True
    return mask.reshape(share.shape)


BASELINES: dict[str, Baseline] = {
    "frequency": frequency,
    "frequency_per_layer": frequency_per_layer,
    "uniform": uniform,
    "front_loading": front_loading,
    "random": random,
}
"""By name, as they appear in a placement."""


def around_pins(baseline: Baseline, share: Share, hot_total: int, pins: Mapping[int, bool]) -> Mask:
    """``baseline`` on the layers that ``pins`` leaves free; a pinned row is all hot (True) or all cold.

    ``pins`` maps rows of ``share`` [L, E]; experts of rows that are pinned hot count towards ``hot_total``.
    """
    L, E = share.shape
    free = np.array([row not in pins for row in range(L)])
    mask = np.zeros((L, E), dtype=np.bool_)
    mask[[row for row, all_hot in pins.items() if all_hot]] = True
    if free.any():
        mask[free] = baseline(share[free], hot_total - int(mask.sum()))
    return mask


def within_bytes(
    baseline: Baseline, share: Share, budget_bytes: int, expert_bytes: NDArray[np.int64]
) -> Mask:
    """The largest ``baseline`` whose experts fit ``budget_bytes``; ``expert_bytes`` is int [L], per expert.

    Baselines grow with the number of experts, so their bytes do too and bisection finds the last that fits.
    """
    fits, too_many = 0, share.size + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        used_bytes = int(expert_bytes @ baseline(share, middle).sum(axis=1))
        fits, too_many = (middle, too_many) if used_bytes <= budget_bytes else (fits, middle)
    return baseline(share, fits)


def _ranking(share: Share) -> NDArray[np.intp]:
    """Positions by falling share, earlier positions first among equals."""
    return np.argsort(-share.astype(np.float64), kind="stable")


def _clamped(share: Share, hot_total: int) -> int:
    return max(0, min(int(hot_total), share.size))
