"""What the slow end of a plan's band does to it: targets that are missed there, arrivals that are not kept up with."""

import math

from placer.prediction import Prediction
from placer.targets import slow_missed_text
from placer.workload import Workload

SLOW_END = "warning: not sure: at the slow end of the predicted ranges "
"""How the note starts that says what a plan keeps in the middle of its band and not at the slow end."""


def slow_end_doubts(found: Prediction, workload: Workload, *, each_target: bool = True) -> tuple[str, ...]:
    """The note that says what ``found`` keeps and would not at the slow end of its bands; () where it keeps all.

    ``each_target`` is False where targets are not to be kept by the plan as a whole, as when goodput is sought. What is
    missed in the middle of the band too is not repeated.
    """
    if found.bands is None:
        return ()
    behind_already = found.serving is not None and found.serving.falls_behind
    missed = slow_missed_text(workload, found, found.bands) if each_target else ""
    if behind_already or math.isfinite(found.bands.ttft_ms_p95.high):
        return (f"{SLOW_END}the plan misses {missed}",) if missed else ()
    behind = "the server falls behind the requests that arrive, and TTFT grows for as long as they do"
    return (f"{SLOW_END}{behind}" + (f"; the plan misses {missed} there" if missed else ""),)
