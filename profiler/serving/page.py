"""Pages: how many decode steps a paged KV pool has room for."""

import numpy as np
from numpy.typing import NDArray


def pages(tokens: NDArray[np.int64], page_tokens: int) -> int:
    """Pages that requests holding ``tokens`` (int64 [B]) fill together."""
    return int((-(-tokens // page_tokens)).sum())


def steps_that_fit(held: NDArray[np.int64], most: int, capacity_pages: int, page_tokens: int) -> int:
    """The largest k up to ``most`` for which every request may hold k more tokens (int64 [B] ``held``)."""
    if page_tokens == 1:
        return max(0, min(most, (capacity_pages - int(held.sum())) // held.size))
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if pages(held + middle, page_tokens) <= capacity_pages:
            low = middle
        else:
            high = middle - 1
    return low
