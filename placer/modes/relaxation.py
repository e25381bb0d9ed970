"""Relaxed targets: the least latencies that a way of running a model keeps where none keeps what is asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from placer.modes.mode import ModeRow
from placer.modes.request import CompareRequest
from placer.modes.search import target_excess
from placer.units import rounded_up
from placer.workload import Workload


@dataclass(frozen=True)
class Relaxation:
    """Targets that ``row`` keeps, tried: those of the request, and what it reaches where it missed them."""

    workload: Workload
    row: ModeRow
    flags: str


def relaxation(
    rows: Sequence[ModeRow], request: CompareRequest, again: Callable[[CompareRequest, ModeRow], ModeRow]
) -> Relaxation | None:
    """The targets of ``request`` raised to what the nearest of ``rows`` reaches; None where that is not kept again.

    ``rows`` run and keep up with what arrives. The nearest misses the fewest targets, then by the smallest factor.
    ``again`` makes a row under another request.
    """
    if not rows:
        return None
    nearest = min(rows, key=lambda row: (len(_missed(row, request.workload)), _excess(row, request.workload)))
    raised = {field: rounded_up(reached) for field, reached in _missed(nearest, request.workload).items()}
    asked = request.workload
    workload = replace(
        asked,
        slo_tpot_ms=float(raised["slo_tpot_ms"]) if "slo_tpot_ms" in raised else asked.slo_tpot_ms,
        slo_ttft_ms=float(raised["slo_ttft_ms"]) if "slo_ttft_ms" in raised else asked.slo_ttft_ms,
    )
    found = again(replace(request, workload=workload), nearest)
    if found.figures is None or found.figures.mid.falls_behind or _excess(found, workload) > 1.0:
        return None
    flags = {"slo_tpot_ms": "--slo-tpot", "slo_ttft_ms": "--slo-ttft"}
    return Relaxation(workload, found, " ".join(f"{flags[field]} {text}" for field, text in raised.items()))


def _missed(row: ModeRow, workload: Workload) -> dict[str, float]:
    """What ``row`` reaches at p95 of the targets that it misses, by their fields, in milliseconds."""
    if row.figures is None:
        return {}
    mid = row.figures.mid
    reached = {"slo_tpot_ms": mid.tpot_ms.p95, "slo_ttft_ms": mid.ttft_ms.p95}
    asked = {"slo_tpot_ms": workload.slo_tpot_ms, "slo_ttft_ms": workload.slo_ttft_ms}
    return {
        field: value
        for field, value in reached.items()
        if (target := asked[field]) is not None and value > target
    }


def _excess(row: ModeRow, workload: Workload) -> float:
    return 0.0 if row.figures is None else target_excess(row.figures.mid, workload)
