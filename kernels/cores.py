"""The cores that this process may use."""

import math
import os
from pathlib import Path

_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota_file: Path = _CGROUP_QUOTA) -> int:
    """Cores that this process may keep busy: its affinity mask, and the cgroup-v2 quota where one is set.

    ``quota_file`` holds "<quota us> <period us>" or "max <period us>" (Linux, cgroup v2).
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = quota_file.read_text(encoding="ascii").split()[:2]
    except (OSError, ValueError):
        return affinity
    if quota == "max":
        return affinity
    return max(1, min(affinity, math.floor(int(quota) / int(period))))
