"""The comparison: every way of running a model on some numbers of GPUs, and which of them wins."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from placer.kv_pool import check_kv_settings
from placer.model.spec import ModelSpec
from placer.modes.gpu_only import spread_problem, spreads
from placer.modes.hardware import ComparedHardware
from placer.modes.mode import Cache, Mode, ModeRow, Way, falls_behind
from placer.modes.other_traffic import SECONDS, OtherTraffic, other_traffic
from placer.modes.request import CompareRequest
from placer.modes.rows import ModeRows
from placer.modes.rule_of_thumb import RuleOfThumb, rule_of_thumb
from placer.modes.search import target_excess
from placer.modes.served_experts import served_model
from placer.modes.steps import judged_trace
from placer.parallelism import Parallelism
from placer.profiler.datasheet_cpu import DatasheetCpu
from placer.profiler.trace.trace import Trace
from placer.units import counted, gib

Progress = Callable[[str, float], None]

TIE = 0.03
"""Rows whose tokens/s differ by less are told apart by the draws of a simulation alone."""
_PLAINEST = (Mode.GPU_ONLY, Mode.HOT_COLD, Mode.STREAMED)
UNIFORM_NOTE = (
    "no trace: routing is assumed uniform, the worst case for hot experts and for caches; --trace FILE "
    "shows what this traffic gives"
)
DEFERRED_NOTE = (
    "hot-cold rows defer selections of every token to the next layer, which changes the model's output: judge its "
    "quality too"
)
ENDED_NOTE = (
    f"what would do was looked for during {SECONDS:g} s, which did not last to try everything: other changes may do "
    "too"
)
SPREAD_NOTE = "tp4+ep2 stands for --tp 4 --ep 2: four GPUs in two groups that share out whole experts"


@dataclass(frozen=True)
class Comparison:
    """Rows in order of GPUs and mode, and the sizing rule beside the exact ledger.

    ``rules`` are for the size of the GPU that was compared. ``others`` are changes of what is asked, each tried,
    where no row keeps up with what arrives and keeps the targets.
    """

    model: ModelSpec
    hardware: ComparedHardware
    request: CompareRequest
    rows: tuple[ModeRow, ...]
    rules: dict[str, RuleOfThumb]
    notes: tuple[str, ...]
    others: tuple[OtherTraffic, ...] = ()

    @property
    def best(self) -> ModeRow | None:
        """The winner under the targets, or None where no row keeps them; one that falls behind where all do."""
        return best_of(self.rows, self.request)

    @property
    def keeping_up(self) -> tuple[ModeRow, ...]:
        """Rows that run and keep up with what arrives, whether they keep targets or not."""
        return keeping_up(self.rows)

    @property
    def tied(self) -> tuple[ModeRow, ...]:
        """Rows that `best` beats by being simpler alone: no more than `TIE` apart in tokens/s, or in TPOT at a rate."""
        return contenders(self.rows, self.request)[1:]

    @property
    def fewest(self) -> ModeRow | None:
        """The winner on the fewest GPUs on which any row keeps the targets."""
        winners = (self.best_on(gpus) for gpus in self.request.gpus)
        return next((winner for winner in winners if winner is not None), None)

    def best_on(self, gpus: int) -> ModeRow | None:
        """As `best`, among the rows of so many GPUs; none that falls behind where any does not."""
        eligible = _eligible(self.rows, self.request)
        here = [row for row in eligible if row.way.parallel.gpus == gpus]
        return next(iter(_ranked(here, self.request)), None)

    def keeps_targets(self, row: ModeRow) -> bool:
        """Whether ``row`` fits and runs, keeps up with what arrives, and keeps every target at p95."""
        return _keeps(row, self.request) and not falls_behind(row)

    def keeps_targets_slow(self, row: ModeRow) -> bool:
        """As `keeps_targets`, at the slow end of the row's band too."""
        return (
            self.keeps_targets(row)
            and row.figures is not None
            and row.figures.keeps_slow(self.request.workload)
        )


def best_of(rows: Iterable[ModeRow], request: CompareRequest) -> ModeRow | None:
    """The simplest of the `contenders`; None where no row keeps the targets."""
    return next(iter(contenders(rows, request)), None)


def contenders(rows: Iterable[ModeRow], request: CompareRequest) -> tuple[ModeRow, ...]:
    """Rows that keep the targets within `TIE` of the most tokens/s, the simplest first.

    Rows that fall behind what arrives count only where all do. Simpler is on fewer GPUs, then in a plainer mode, then
    with fewer groups of experts; then the faster. At a rate of arrivals, rows that keep up deliver the same: of those
    on the fewest GPUs, the ones within `TIE` of the least p95 TPOT.
    """
    return _ranked(_eligible(rows, request), request)


def _eligible(rows: Iterable[ModeRow], request: CompareRequest) -> tuple[ModeRow, ...]:
    """Rows that keep the targets: those that keep up with what arrives, or all where none does."""
    kept = tuple(row for row in rows if _keeps(row, request))
    return tuple(row for row in kept if not falls_behind(row)) or kept


def _ranked(kept: Sequence[ModeRow], request: CompareRequest) -> tuple[ModeRow, ...]:
    """The `contenders` among ``kept``, which are eligible."""

    def rate(row: ModeRow) -> float:
        return 0.0 if row.figures is None else row.figures.mid.output_tokens_per_s

    def tpot_ms(row: ModeRow) -> float:
        return math.inf if row.figures is None else row.figures.mid.tpot_ms.p95

    def effort(row: ModeRow) -> tuple[int, int, int, float]:
        parallel = row.way.parallel
        return parallel.gpus, _PLAINEST.index(row.way.mode), parallel.ep, -rate(row)

    # What serves as gpu-only does, and takes host memory too, decides nothing beside it.
    keeping = [row for row in kept if row.unstreamed is None] or list(kept)
    behind = any(map(falls_behind, keeping))
    if keeping and not behind and request.workload.arrival_rate_per_s is not None:
        fewest = min(row.way.parallel.gpus for row in keeping)
        keeping = [row for row in keeping if row.way.parallel.gpus == fewest]
        most_ms = (1 + TIE) * min(map(tpot_ms, keeping))
        return tuple(sorted((row for row in keeping if tpot_ms(row) <= most_ms), key=effort))
    least = (1 - TIE) * max(map(rate, keeping), default=0.0)
    return tuple(sorted((row for row in keeping if rate(row) >= least), key=effort))


def _keeps(row: ModeRow, request: CompareRequest) -> bool:
    if row.figures is None or not row.runs:
        return False
    return target_excess(row.figures.mid, request.workload) <= 1.0


def compare(
    model: ModelSpec,
    hardware: ComparedHardware,
    trace: Trace | None,
    request: CompareRequest,
    progress: Progress = lambda _text, _share: None,
) -> Comparison:
    """Every way of running ``model`` on every number of GPUs of ``request``.

    ``trace`` None assumes uniform routing. With one, placements are solved on some of its requests, and all ways
    are judged on others.

    Raises
    ------
    BadInputError
        When a request is longer than the model's context, the runtime does not keep the model's cache in the
        precision asked for, more is deferred than a token takes, or the trace belongs to another model.
    """
    check_kv_settings(model, chunk_tokens=0, kv_dtype=request.kv_dtype, flag="")
    request.behaviour.check(model.top_k)
    request.workload.check_context(model.max_context_tokens)
    judged = judged_trace(model, trace, request.seed)
    made = ModeRows(model, hardware, trace, judged, request)
    rows, ways = [], list(_ways(model, request))
    for number, way in enumerate(ways):
        progress(f"{way.mode.value}, {counted(way.parallel.gpus, 'GPU')}, {way.spread}", number / len(ways))
        rows.append(made.row(way))
    notes = (
        *((UNIFORM_NOTE,) if trace is None else made.assumptions),
        *((DEFERRED_NOTE,) if request.behaviour.deferred_experts else ()),
        *(cold.notes if isinstance(cold := hardware.profile.cpu, DatasheetCpu) else ()),
        *((SPREAD_NOTE,) if any(way.parallel.ep > 1 for way in ways) else ()),
    )
    others: tuple[OtherTraffic, ...] = ()
    best = best_of(rows, request)
    if best is None or falls_behind(best):
        progress("looking for what would do", 1.0)
        others, ended = other_traffic([row for row in rows if row.runs], request, made.again)
        notes = (*notes, *((ENDED_NOTE,) if ended else ()))
    rules = _rules(model, hardware, request)
    return Comparison(model, hardware, request, tuple(rows), rules, notes, others)


def keeping_up(rows: Iterable[ModeRow]) -> tuple[ModeRow, ...]:
    """Those of ``rows`` that run and do not fall behind what arrives."""
    return tuple(row for row in rows if row.runs and not falls_behind(row))


def _ways(model: ModelSpec, request: CompareRequest) -> Iterator[Way]:
    """GPU-only in every possible spread, streamed in the first of them, hot-cold under tp alone."""
    served = served_model(model, Mode.GPU_ONLY)
    for gpus in request.gpus:
        possible = [each for each in spreads(gpus) if spread_problem(served, each) is None]
        # Where none is possible, rows say why.
        possible = possible or [Parallelism(gpus)]
        for parallel in possible:
            yield Way(Mode.GPU_ONLY, parallel)
        for cache in Cache:
            yield Way(Mode.STREAMED, possible[0], cache)
        # sglang-kt divides hot and cold experts under tp alone.
        yield Way(Mode.HOT_COLD, Parallelism(gpus))


def _rules(model: ModelSpec, hardware: ComparedHardware, request: CompareRequest) -> dict[str, RuleOfThumb]:
    """The rule for the GPU that is compared, by the size that it is sold as, or the part of it that may be used."""
    if request.budget_bytes < request.device_bytes:
        return {gib(request.budget_bytes): rule_of_thumb(model, request, request.budget_bytes)}
    size_gb = hardware.gpu.memory_gb
    return {f"{size_gb} GB": rule_of_thumb(model, request, size_gb * 10**9)}
