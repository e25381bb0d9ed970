"""`placer.bench_growth`: how the solver's time grows."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from placer.answer.bench import write_csv
from placer.api.bench import CLOCKS
from placer.api.checked import checked
from placer.api.choice import choice, names
from placer.api.number import check_seed
from placer.api.opened import Source, path_or_none
from placer.api.progress import Progress, silent
from placer.api.time_limit import solver_seconds
from placer.output import checked_output
from placer.solvers.bench.growth import FAMILIES, Growth, growth
from placer.solvers.bench.solver_run import Limits

GAP = 0.005
"""Relative gap at which a solve of the sweep stops unless another is given."""


@dataclass(frozen=True)
class BenchGrowth:
    """The sweep and fit of every family."""

    families: tuple[Growth, ...]

    @property
    def solves(self) -> int:
        """Solves that are finished."""
        return sum(len(each.points) for each in self.families)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the sweep before all its solves."""
        return any(each.interrupted for each in self.families)

    def document(self) -> dict[str, Any]:
        """What ``bench --growth --json`` prints."""
        return {"growth": [{**asdict(each), "null_reasons": _null_reasons(each)} for each in self.families]}


def _null_reasons(grown: Growth) -> dict[str, str]:
    reasons = {
        f"points.{number}.gap": "a gap needs a placement and a bound"
        for number, point in enumerate(grown.points)
        if point.gap is None
    }
    return reasons | (
        {"spread": "fewer than five solves ended within the limit"} if grown.spread is None else {}
    )


@checked
def bench_growth(
    *,
    family: str | Sequence[str] = (),
    seed: int = 0,
    time_limit: float | None = None,
    prove: bool = False,
    clock: str = "wall",
    gap: float | None = None,
    csv: Source | None = None,
    progress: Progress = silent,
) -> BenchGrowth:
    """Solve a sweep of sizes of each family and fit how time grows with layers, experts and steps.

    Raises
    ------
    BadInputError
        When a family or the clock is not known.
    """
    check_seed(seed)
    path = path_or_none(csv)
    if path is not None:
        checked_output(path, (), "--csv")
    limits = Limits(
        solver_seconds(time_limit, prove),
        gap=GAP if gap is None else gap,
        cpu=choice(clock, CLOCKS, "--clock"),
        prove=prove,
    )
    grown = BenchGrowth(
        tuple(growth(limits, families=names(family) or FAMILIES, seed=seed, progress=progress))
    )
    if not grown.solves:
        raise KeyboardInterrupt
    if path is not None:
        write_csv([point for each in grown.families for point in each.points], path)
    return grown
