"""A hot set that every arriving prompt replaces: what kt-kernel's --kt-enable-dynamic-expert-update does.

After a prompt ran on the GPU, each layer's hot experts become that batch's most selected ones, as many as before
(kt_ep_wrapper.py of sglang-kt 0.7.2, `_update_gpu_experts_from_batch`), whatever the other running requests use.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from placer.profiler.trace.selection import selection_counts
from placer.profiler.trace.split import tokens_at
from placer.profiler.trace.trace import Phase, TokenTrace


def last_arrived(requests: NDArray[np.integer]) -> NDArray[np.int64]:
    """The request whose prompt came last as each step ran: int64 [S] for requests [S, R] of consecutive steps.

    A slot's request arrives where it differs from the step before; of two that arrive together the first slot's
    counts, and at the start the first slot's.
    """
    arrives = np.diff(requests, axis=0) != 0
    last = np.empty(len(requests), dtype=np.int64)
    last[0] = requests[0, 0]
    for step in range(1, len(requests)):
        slots = np.flatnonzero(arrives[step - 1])
        last[step] = requests[step, slots[0]] if slots.size else last[step - 1]
    return last


class PromptHot:
    """Hot sets by prompt: the ``hot_per_layer`` (int [L]) most selected experts of each layer, smaller ids first.

    Where the trace holds no prompts, a request's own output stands in for it (``from_output``): better than any
    prompt could be.
    """

    def __init__(self, trace: TokenTrace, hot_per_layer: NDArray[np.integer]) -> None:
        self.from_output = not (trace.phase == Phase.PREFILL).any()
        self._trace = trace
        self._hot = hot_per_layer
        phase = Phase.DECODE if self.from_output else Phase.PREFILL
        self._tokens = np.flatnonzero(trace.phase == phase)
        self._requests = trace.request[self._tokens]
        self._order = np.argsort(self._requests, kind="stable")

    def mask(self, request: int) -> NDArray[np.bool_]:
        """The hot set after ``request``'s prompt: bool [L, E]."""
        ranked = self._requests[self._order]
        first, end = np.searchsorted(ranked, [request, request + 1])
        counts = selection_counts(tokens_at(self._trace, self._tokens[self._order[first:end]]))
        place = np.argsort(np.argsort(-counts, axis=1, kind="stable"), axis=1)
        return np.asarray(place < self._hot[:, None])


def runs(values: NDArray[np.int64]) -> Iterator[tuple[slice, int]]:
    """Stretches of equal ``values`` (int [S]), each with its value."""
    starts = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    for start, end in zip(starts, [*starts[1:], len(values)], strict=True):
        yield slice(int(start), int(end)), int(values[start])
