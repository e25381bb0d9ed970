"""The plan beside hot sets that move while the server runs: caches, and the runtime's own update."""

from dataclasses import dataclass

from placer.placement import PlacementDocument
from placer.reports.absent import Absent
from placer.units import duration, percent

_POLICIES = {
    "plan": ("this plan", "plan"),
    "oracle_static": ("the best static set, known afterwards", "oracle_static"),
    "lru_overlapped": ("LRU cache, loading beside the computation", "lru"),
    "lru_serial": ("LRU cache, loading before the computation", "lru"),
    "lru_cpu": ("LRU cache, missing experts on the CPU", "lru"),
    "prompt_update": ("the runtime's update after a prompt", "prompt_update"),
}
"""Policies of ``dynamic.step_us`` as a reader knows them, and which of ``dynamic.hit_share`` is theirs."""


@dataclass(frozen=True)
class MovingSets:
    """The verdict, a row for each policy, and what is assumed.

    ``rows`` hold: policy, share of the selections that it finds hot, MoE time of a decode step.
    """

    verdict: str
    rows: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]


def moving_sets(document: PlacementDocument) -> MovingSets | Absent:
    """The comparison that a placement solved from a trace of tokens holds."""
    dynamic = document.dynamic
    if dynamic is None:
        why = document.null_reasons.get("dynamic", "the placement does not compare it with moving hot sets")
        return Absent(
            why, "solve with a trace of tokens that 'placer trace record' or 'placer trace import' wrote"
        )
    rows = []
    for policy, time_us in dynamic.step_us.items():
        name, found = _POLICIES.get(policy, (policy, policy))
        share = dynamic.hit_share.get(found)
        rows.append(
            (
                name,
                "unknown" if share is None else percent(share),
                "unknown" if time_us is None else duration(time_us),
            )
        )
    return MovingSets(dynamic.verdict, tuple(rows), dynamic.assumptions)
