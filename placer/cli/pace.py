"""The pace of a command's work, and how long what is left of it takes at that pace."""

from bisect import bisect_right

LEAST_SHARE = 0.1
"""Share of the work that must be done since it began before the time left is told."""
LEAST_ADVANCES = 5
"""Reports of progress that it takes: from fewer, one long step looks like a pace."""
STEADY = 2.0
"""The paces of the two halves of the time may differ by this factor; else nothing is told."""
_BETWEEN_S = 0.1
"""Reports closer together than this are one."""


class Pace:
    """Follows shares of work over a clock; the work began when the clock showed ``start_s``.

    Shares that parts of the work stand for are nominal: a search may take most of the time and a tenth of the shares.
    So the time left is told only while the pace holds.
    """

    def __init__(self, start_s: float) -> None:
        self._times_s = [start_s]
        self._shares = [0.0]
        self._advances = 0

    def left_s(self, share: float, now_s: float) -> float | None:
        """Seconds left, ``share`` being done at ``now_s``, at the pace of the last half; None where that is not known.

        A share below the last one begins another piece of work, with a pace of its own.
        """
        if share < self._shares[-1]:
            self._times_s, self._shares, self._advances = [now_s], [share], 0
        elif share > self._shares[-1]:
            self._advances += 1
            if now_s - self._times_s[-1] >= _BETWEEN_S:
                self._times_s.append(now_s)
                self._shares.append(share)
        first_s, first = self._times_s[0], self._shares[0]
        if self._advances < LEAST_ADVANCES or share - first < LEAST_SHARE or now_s <= first_s:
            return None
        middle_s = (first_s + now_s) / 2
        before = self._shares[bisect_right(self._times_s, middle_s) - 1]
        earlier, recent = before - first, share - before
        if not earlier / STEADY <= recent <= earlier * STEADY:
            return None
        return (1.0 - share) / recent * (now_s - middle_s)
