"""Processor time while calls are timed: what this process had, what others took, what the host withheld."""

import time
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class ProcessorTime:
    """Processor seconds: of this process, of other programs, withheld by the host, and on the wall.

    Attributes
    ----------
    own_s
        User and system time of this process, all its threads.
    others_s
        The same of every other program, also of niced ones and of interrupts.
    stolen_s
        Time in which the virtual machine wanted to run and its host ran another (0 on bare metal).
    wall_s
        Time on the wall.
    """

    own_s: float
    others_s: float
    stolen_s: float
    wall_s: float

    def since(self, before: "ProcessorTime") -> "ProcessorTime":
        """What passed between ``before`` and this; counted in ticks, so a short span may come out negative."""
        return ProcessorTime(
            self.own_s - before.own_s,
            self.others_s - before.others_s,
            self.stolen_s - before.stolen_s,
            self.wall_s - before.wall_s,
        )

    def __add__(self, other: "ProcessorTime") -> "ProcessorTime":
        return ProcessorTime(
            self.own_s + other.own_s,
            self.others_s + other.others_s,
            self.stolen_s + other.stolen_s,
            self.wall_s + other.wall_s,
        )

    @property
    def other_cores(self) -> float:
        """Cores that other programs kept busy, on average."""
        return max(0.0, self.others_s) / max(self.wall_s, 1e-9)

    @property
    def stolen_share(self) -> float:
        """Share of the processor time due to this process that the host gave away."""
        return max(0.0, self.stolen_s) / max(self.own_s + self.stolen_s, 1e-9)


def processor_time() -> ProcessorTime:
    """Processor time since the machine started (others) and since this process started (its own)."""
    times = psutil.cpu_times()
    mine = psutil.Process().cpu_times()
    own = float(mine.user + mine.system)
    # Neither idle nor waiting for a disk; which of the others there are depends on the system.
    busy = sum(float(getattr(times, name, 0.0)) for name in ("user", "nice", "system", "irq", "softirq"))
    return ProcessorTime(own, busy - own, float(getattr(times, "steal", 0.0)), time.monotonic())
