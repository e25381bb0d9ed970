"""Thread timing: how fast a decode call ran with one number of threads on so many memory nodes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ThreadTiming:
    """One setting: lower quartile and median of the call, or why it could not be timed.

    ``threads`` is what SGLang calls ``--kt-cpuinfer``, ``subpools`` ``--kt-threadpool-count``.
    """

    threads: int
    subpools: int
    p25_us: float | None
    p50_us: float | None
    problem: str | None = None
