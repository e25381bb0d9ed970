"""The plan by domain of the traffic: on a trace that is given, or as a plan for the worst domain states it."""

from dataclasses import dataclass

from placer.answer.visible import short_name
from placer.evaluation import Evaluation
from placer.placement import PlacementDocument
from placer.reports.absent import Absent
from placer.reports.trace_score import NO_TRACE
from placer.units import duration, percent, signed_percent


@dataclass(frozen=True)
class DomainTable:
    """A table in words; the first column of ``rows`` names the domain."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def domain_tables(
    document: PlacementDocument, evaluation: Evaluation | None
) -> tuple[DomainTable, ...] | Absent:
    """The domains of the trace that was evaluated, and those that the placement was made for."""
    tables = []
    if evaluation is not None and evaluation.domains:
        tables.append(_evaluated(evaluation))
    if document.robust is not None:
        tables.append(_robust(document))
    if tables:
        return tuple(tables)
    if evaluation is not None:
        return Absent("the trace names no domains", "record or import it with a domain for every request")
    return NO_TRACE


def _evaluated(evaluation: Evaluation) -> DomainTable:
    return DomainTable(
        "MoE time of a decode step on the trace's reporting requests, by domain",
        ("domain", "this plan", "frequency", "uniform (the default)", "default slower by", "plan's coverage"),
        tuple(
            (
                short_name(name),
                *(duration(tables["step_us"][key]) for key in ("plan", "frequency", "uniform")),
                signed_percent(tables["step_us"]["uniform"] / tables["step_us"]["plan"] - 1.0),
                percent(tables["coverage"]["plan"]),
            )
            for name, tables in evaluation.domains.items()
        ),
    )


def _robust(document: PlacementDocument) -> DomainTable:
    robust = document.robust
    assert robust is not None
    return DomainTable(
        f"planned for the worst domain ({robust.criterion}): time per output token on held-out requests",
        ("domain", "this plan", "plan for all", "frequency", "its own plan", "regret"),
        tuple(
            (
                f"{short_name(name)} (worst)" if name == robust.worst else short_name(name),
                *(duration(value) for value in (each.plan_us, each.mix_us, each.frequency_us, each.own_us)),
                signed_percent(each.regret),
            )
            for name, each in robust.domains.items()
        ),
    )
