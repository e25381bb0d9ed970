"""Whether a planned server keeps up with requests that arrive by themselves, in words that every command uses."""

from placer.placement import PlacementDocument
from placer.predicted_figures import FALLS_BEHIND
from placer.serving import KEEPS_UP
from placer.units import percent, rounded, rounded_down

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


def open_loop_advice(document: PlacementDocument) -> str | None:
    """What a server that falls behind would keep up with; None where it keeps up."""
    found = document.predicted.open_loop
    if found is None or not found.falls_behind:
        return None
    most = f"{rounded_down(KEEPS_UP * found.capacity_per_s):g}"
    given = document.workload.arrivals is not None
    said = (
        f"fewer requests: it keeps up with at most {most} per second"
        if given
        else f"--rate of at most {most}"
    )
    if document.kv.max_running_requests < document.workload.concurrency:
        return said
    return f"{said}, or a larger --concurrency, which lets more run at once"


def ttft_without_value(document: PlacementDocument) -> str:
    """What stands for a TTFT that a figure of ``document`` lacks."""
    return GROWS if FALLS_BEHIND in document.null_reasons.values() else "unknown"
