"""Latency targets at the 95th percentile: which predictions keep them, and what is said when none does."""

import math
from collections.abc import Sequence

from placer.errors import InfeasibleError
from placer.prediction import Prediction
from placer.workload import Workload


def has_targets(workload: Workload) -> bool:
    """Whether any target was given."""
    return workload.slo_tpot_ms is not None or workload.slo_ttft_ms is not None


def meets_targets(workload: Workload, figures: Prediction) -> bool:
    """Whether ``figures`` keep every target of ``workload``; an unpredicted TTFT keeps none."""
    pairs = ((workload.slo_tpot_ms, figures.tpot_ms_p95), (workload.slo_ttft_ms, _ttft_ms(figures)))
    return all(target is None or reached <= target for target, reached in pairs)


def targets_missed(workload: Workload, tried: Sequence[Prediction]) -> InfeasibleError:
    """The error when none of ``tried`` keeps the targets: names each, and the best that any level reaches."""
    missed = []
    for name, target, reached in (
        ("--slo-tpot", workload.slo_tpot_ms, min(figures.tpot_ms_p95 for figures in tried)),
        ("--slo-ttft", workload.slo_ttft_ms, min(_ttft_ms(figures) for figures in tried)),
    ):
        if target is not None and math.isinf(reached):
            missed.append(f"{name} of {target:g} ms (not predicted where prompts are left out)")
        elif target is not None and reached > target:
            missed.append(f"{name} of {target:g} ms (best level reaches {reached:,.1f} ms at p95)")
    if not missed:
        missed.append("both latency targets at once (each alone is reached by some level)")
    fewer = "lower --concurrency, " if workload.concurrency > 1 else ""
    return InfeasibleError(
        "no level meets " + " and ".join(missed),
        f"relax the target, {fewer}or give more HBM" if fewer else "relax the target, or give more HBM",
    )


def _ttft_ms(figures: Prediction) -> float:
    return math.inf if figures.ttft_ms_p95 is None else figures.ttft_ms_p95
