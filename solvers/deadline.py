"""The wall-clock limit of a solve."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Deadline:
    """Started when created; phases have fixed lengths and ask `passed` only to be cut short."""

    limit_s: float
    started: float = field(default_factory=time.monotonic)

    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def left_s(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self.limit_s - self.elapsed_s())

    def passed(self) -> bool:
        """Whether the time is up."""
        return self.elapsed_s() >= self.limit_s
