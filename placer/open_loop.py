"""Whether a planned server keeps up with requests that arrive by themselves, in words that every command uses."""

from placer.placement import PlacementDocument
from placer.predicted_figures import FALLS_BEHIND
from placer.units import percent, rounded

GROWS = "grows"
"""Stands for a latency that has no steady value, because the server falls behind."""


def falls_behind(document: PlacementDocument) -> bool:
    """Whether requests arrive as fast as the planned server finishes them, or faster."""
    found = document.predicted.open_loop
    return found is not None and found.falls_behind


def open_loop_sentence(document: PlacementDocument) -> str | None:
    """What arrives beside what the server can finish; None in a closed loop, or where all arrive at one moment."""
    found = document.predicted.open_loop
    if found is None or found.arrivals_per_s is None:
        return None
    arriving, capacity = (
        f"{rounded(rate, 3)} requests/s" for rate in (found.arrivals_per_s, found.capacity_per_s)
    )
    if not found.falls_behind:
        used = percent(found.arrivals_per_s / found.capacity_per_s)
        return f"{arriving} arrive, {used} of the {capacity} that it can finish"
    text = f"the server falls behind: {arriving} arrive and it can finish {capacity}"
    given = document.workload.arrivals
    if given is None:
        return f"{text}, so that waiting grows for as long as they arrive"
    return f"{text}; latencies are of these {given.requests:,} requests, and more of them would wait longer"


def ttft_without_value(document: PlacementDocument) -> str:
    """What stands for a TTFT that a figure of ``document`` lacks."""
    return GROWS if FALLS_BEHIND in document.null_reasons.values() else "unknown"
