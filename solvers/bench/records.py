"""What is on record of an instance: the best objective known, and how far HiGHS came in a long run."""

import functools
from dataclasses import dataclass
from importlib.resources import files

import pandas as pd

from placer.solvers.bench.trajectory import Milestone


@dataclass(frozen=True)
class BestKnown:
    """The lowest objective on record: found by which solver, in how many seconds."""

    objective_us: float
    found_by: str
    seconds: float


def best_known(sha256: str) -> BestKnown | None:
    """The best objective on record for the instance with this content hash."""
    table = _table("best_known.csv")
    rows = table[table["sha256"] == sha256]
    if rows.empty:
        return None
    row = rows.sort_values("objective_us", kind="stable").iloc[0]
    return BestKnown(float(row["objective_us"]), str(row["solver"]), float(row["seconds"]))


def recorded_highs(sha256: str) -> tuple[Milestone, ...]:
    """What HiGHS held after 5 to 300 seconds of CPU time in a recorded run; empty where there is none.

    Milestones lie on the recorded limits: what was held at the limit, which HiGHS may have had sooner.
    """
    table = _table("recorded_highs.csv")
    rows = table[table["sha256"] == sha256].sort_values("limit_s", kind="stable")
    return tuple(
        Milestone(float(row.limit_s), float(row.limit_s), _number(row.objective_us), _number(row.bound_us))
        for row in rows.itertuples()
    )


@functools.cache
def _table(name: str) -> pd.DataFrame:
    # Lines that start with # say which command made the table.
    with files("placer.solvers.bench").joinpath(name).open() as file:
        return pd.read_csv(file, comment="#")


def _number(value: object) -> float | None:
    return None if pd.isna(value) else float(str(value))
