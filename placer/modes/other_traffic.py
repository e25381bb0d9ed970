"""Other traffic and targets that a way of running a model serves where none serves what is asked, each tried."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from placer.level import MOST_RUNNING
from placer.modes.mode import ModeRow, falls_behind
from placer.modes.request import CompareRequest
from placer.modes.search import target_excess
from placer.remedy import largest
from placer.serving import KEEPS_UP
from placer.units import rounded_down, rounded_up
from placer.workload import Workload

Again = Callable[[CompareRequest, ModeRow], ModeRow]
"""Makes a row under another request."""
SECONDS = 30.0
"""After so long nothing more is tried."""
_RATE_HALVINGS = 5
_NEAR = 0.5
"""Share of the nearest row's requests per second from which on other modes are tried beside it."""


@dataclass(frozen=True)
class OtherTraffic:
    """What may be asked instead, as ``flags`` say it, and the row that serves it."""

    workload: Workload
    row: ModeRow
    flags: str


def other_traffic(
    rows: Sequence[ModeRow], request: CompareRequest, again: Again
) -> tuple[tuple[OtherTraffic, ...], bool]:
    """Single changes of ``request`` under which the nearest of ``rows``, which all run, keeps up and keeps the targets,
    and whether time ended the search for them.

    The nearest keeps up, misses the fewest targets, and then by the smallest factor; where all fall behind, it serves
    the most requests. More requests at a time come first, as they cost least, then targets that are raised, then less
    traffic. A rate that falls behind is told for more requests at a time too, where those serve more.
    """
    if not rows:
        return (), False
    ordered = sorted(rows, key=lambda row: _distance(row, request.workload))
    # The nearest of every mode; with more requests at a time another mode may serve most.
    modes = {(row.way.mode, row.way.cache): row for row in reversed(ordered)}
    least_per_s = _NEAR * _capacity_per_s(ordered[0])
    rivals = [row for row in ordered if row in modes.values() and _capacity_per_s(row) >= least_per_s]
    looking = _Search(request, ordered[0], rivals, again)
    return tuple(looking.found()), looking.ended


@dataclass
class _Search:
    """Changes of ``request``, tried on the way of ``row``; more requests at a time on those of ``rivals`` too."""

    request: CompareRequest
    row: ModeRow
    rivals: Sequence[ModeRow]
    again: Again

    def __post_init__(self) -> None:
        self._until = time.monotonic() + SECONDS
        self.ended = False
        """Whether something was left untried for want of time."""

    def found(self) -> Iterator[OtherTraffic]:
        """Every kind of change that does."""
        workload = self.request.workload
        changes = [self._raised()]
        if workload.is_open_loop:
            # What takes longest is tried last.
            lower = self._lower_rate(workload, self.row)
            changes = [self._more_at_once(), *changes, lower]
        else:
            changes.append(self._fewer_clients())
        yield from (change for change in changes if change is not None)

    def _tried(self, workload: Workload, row: ModeRow) -> ModeRow | None:
        """The way of ``row`` under ``workload``, where it keeps up and keeps the targets; None too when time is up."""
        if self._time_is_up():
            return None
        found = self.again(replace(self.request, workload=workload), row)
        return found if _serves(found, workload) else None

    def _time_is_up(self) -> bool:
        self.ended = self.ended or time.monotonic() > self._until
        return self.ended

    def _raised(self) -> OtherTraffic | None:
        """Targets raised to what the row reaches where it misses them."""
        asked = self.request.workload
        if falls_behind(self.row):
            return None
        raised = {field: rounded_up(reached) for field, reached in _missed(self.row, asked).items()}
        workload = replace(
            asked,
            slo_tpot_ms=float(raised["slo_tpot_ms"]) if "slo_tpot_ms" in raised else asked.slo_tpot_ms,
            slo_ttft_ms=float(raised["slo_ttft_ms"]) if "slo_ttft_ms" in raised else asked.slo_ttft_ms,
        )
        flags = {"slo_tpot_ms": "--slo-tpot", "slo_ttft_ms": "--slo-ttft"}
        said = " ".join(f"{flags[field]} {text}" for field, text in raised.items())
        found = self._tried(workload, self.row)
        return None if found is None else OtherTraffic(workload, found, said)

    def _fewer_clients(self) -> OtherTraffic | None:
        """The most clients of whom each gets what is asked, found by bisection."""
        kept: dict[int, ModeRow] = {}

        def serves(clients: int) -> bool:
            found = self._tried(replace(self.request.workload, concurrency=clients), self.row)
            if found is not None:
                kept[clients] = found
            return found is not None

        clients = largest(1, self.request.workload.concurrency - 1, serves)
        if clients is None:
            return None
        workload = replace(self.request.workload, concurrency=clients)
        return OtherTraffic(workload, kept[clients], f"--concurrency {clients}")

    def _more_at_once(self) -> OtherTraffic | None:
        """Twice as many requests at a time, and twice that, until it does; else what the most of them keep up with."""
        asked, most, served_per_s = self.request.workload, self.row, _capacity_per_s(self.row)
        widest = asked
        while widest.concurrency * 2 <= MOST_RUNNING and not self._time_is_up():
            wider = replace(widest, concurrency=2 * widest.concurrency)
            found = self.row
            for rival in self.rivals:
                made = self.again(replace(self.request, workload=wider), rival)
                if _serves(made, wider):
                    return OtherTraffic(wider, made, f"--concurrency {wider.concurrency}")
                found = max(found, made, key=_capacity_per_s)
            if _capacity_per_s(found) <= served_per_s:
                # Memory or the hardware ends it, not the places.
                break
            widest, most, served_per_s = wider, found, _capacity_per_s(found)
        if widest is asked:
            return None
        lower = self._lower_rate(widest, most)
        return (
            None
            if lower is None
            else replace(lower, flags=f"--concurrency {widest.concurrency} {lower.flags}")
        )

    def _lower_rate(self, workload: Workload, row: ModeRow) -> OtherTraffic | None:
        """The highest rate that does, by bisection from what ``row`` keeps up with; None for given arrivals."""
        if workload.rate_per_s is None:
            return None
        high = min(KEEPS_UP * _capacity_per_s(row), workload.rate_per_s)
        low, best, rate = 0.0, None, rounded_down(high)
        for _ in range(_RATE_HALVINGS):
            lower = replace(workload, rate_per_s=rate)
            found = self._tried(lower, row) if low < rate < workload.rate_per_s else None
            if found is None:
                high = rate
            else:
                low, best = rate, OtherTraffic(lower, found, f"--rate {rate:g}")
                if high - low <= 0.01 * high:
                    break
            rate = rounded_down((low + high) / 2, 2)
        return best


def _serves(row: ModeRow, workload: Workload) -> bool:
    return row.figures is not None and not falls_behind(row) and _excess(row, workload) <= 1.0


def _distance(row: ModeRow, workload: Workload) -> tuple[bool, float, float]:
    """How far ``row`` is from serving ``workload``."""
    if falls_behind(row):
        return True, -_capacity_per_s(row), 0.0
    return False, len(_missed(row, workload)), _excess(row, workload)


def _capacity_per_s(row: ModeRow) -> float:
    return 0.0 if row.figures is None else row.figures.mid.capacity_per_s or 0.0


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
