"""What is on record of an instance: the best objective known, and how far HiGHS came in a long run."""

import csv
import functools
from dataclasses import dataclass
from importlib.resources import files

from placer.solvers.bench.trajectory import Milestone


@dataclass(frozen=True)
class BestKnown:
    """The lowest objective on record: found by which solver, in how many seconds."""

    objective_us: float
    found_by: str
    seconds: float


def best_known(sha256: str) -> BestKnown | None:
    """The best objective on record for the instance with this content hash."""
    rows = [row for row in _table("best_known.csv") if row["sha256"] == sha256]
    found = [BestKnown(float(row["objective_us"]), row["solver"], float(row["seconds"])) for row in rows]
    return min(found, key=lambda one: one.objective_us, default=None)


def recorded_highs(sha256: str) -> tuple[Milestone, ...]:
    """What HiGHS held after 5 to 300 seconds of CPU time in a recorded run; empty where there is none.

    Milestones lie on the recorded limits: what was held at the limit, which HiGHS may have had sooner.
    """
    rows = [row for row in _table("recorded_highs.csv") if row["sha256"] == sha256]
    milestones = [
        Milestone(
            float(row["limit_s"]),
            float(row["limit_s"]),
            _number(row["objective_us"]),
            _number(row["bound_us"]),
        )
        for row in rows
    ]
    return tuple(sorted(milestones, key=lambda one: one.cpu_seconds))


@functools.cache
def _table(name: str) -> list[dict[str, str]]:
    with files("placer.solvers.bench").joinpath(name).open(encoding="utf-8") as file:
        # Lines that start with # say which command made the table.
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def _number(text: str) -> float | None:
    return float(text) if text else None
