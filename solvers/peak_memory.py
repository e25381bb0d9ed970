"""Peak resident memory of a piece of work, sampled."""

import contextlib
import threading
from types import TracebackType

import psutil

INTERVAL_S = 0.01


class PeakMemory:
    """While entered, samples the resident memory of this process and its children.

    Afterwards ``peak_bytes`` is the highest sample less the memory held on entry. A peak shorter than the
    interval of 10 ms can be missed.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._before = 0
        self._highest = 0

    @property
    def peak_bytes(self) -> int:
        """Growth of the resident memory at its highest sample."""
        return max(0, self._highest - self._before)

    def __enter__(self) -> "PeakMemory":
        self._before = self._highest = self._resident()
        self._sampler.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._sampler.join()

    def _sample(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            self._highest = max(self._highest, self._resident())

    def _resident(self) -> int:
        total = int(self._process.memory_info().rss)
        with contextlib.suppress(psutil.Error):
            for child in self._process.children(recursive=True):
                # A child may end between being listed and being asked.
                with contextlib.suppress(psutil.Error):
                    total += int(child.memory_info().rss)
        return total
