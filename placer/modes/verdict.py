"""The verdict of a comparison: which row wins and what ties with it, or which target is missed, and by how much."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from placer.modes.comparison import TIE, Comparison
from placer.modes.mode import ModeFigures, ModeRow, falls_behind
from placer.modes.other_traffic import OtherTraffic
from placer.modes.search import target_excess
from placer.serving import KEEPS_UP
from placer.targets import has_targets
from placer.units import counted, duration, excess_percent, figure, rounded_down, telling_digits
from placer.workload import Workload

_NAMED = 3
"""Ties that are named; the others are counted."""


@dataclass(frozen=True)
class MissedTarget:
    """A target that no row keeps, and the row that comes nearest to it.

    Attributes
    ----------
    field, name
        "tpot_ms" or "ttft_ms", and what it is called.
    asked_ms, reached_ms
        The target, and the row's p95.
    """

    field: str
    name: str
    asked_ms: float
    reached_ms: float
    row: ModeRow

    @property
    def factor(self) -> float:
        """What is reached, as a multiple of what is asked."""
        return self.reached_ms / self.asked_ms


def verdict(comparison: Comparison) -> str:
    """Which row wins, or what stands in the way, in a sentence or two."""
    best = comparison.best
    if best is None:
        return _nothing(comparison)
    if falls_behind(best):
        return _behind(best)
    parts = [f"best: {name(best)}, {_reached(best)}"]
    if comparison.tied:
        parts.append(f"{_tie(comparison.tied)}")
    parts += _at_a_rate(comparison, best)
    fewest = comparison.fewest
    if fewest is not None and fewest != best:
        parts.append(f"on the fewest GPUs: {name(fewest)}, {_reached(fewest)}")
    if doubt := _doubt(comparison, best):
        parts.append(doubt)
    return "; ".join(parts)


def advice(comparison: Comparison) -> str | None:
    """What to change where no row wins, or all fall behind; None where no single change is known that would do."""
    best, others = comparison.best, comparison.others
    if best is not None and not falls_behind(best):
        return None
    if len(others) == 1:
        (other,) = others
        return f"{other.flags}, tried: {_does(other)}"
    if others:
        each = "; ".join(f"{other.flags} ({_does(other)})" for other in others)
        return f"any one of these, each tried: {each}"
    if best is not None:
        return f"fewer requests: {name(best)} keeps up with at most {_kept_up_with(best)} per second"
    if any(row.fits for row in comparison.rows):
        return None
    for row in sorted(comparison.rows, key=lambda row: _short(comparison, row)):
        if row.obstacle is not None and row.obstacle.cures:
            return f"{' or '.join(row.obstacle.cures)}, for {_way_name(row)}"
    return None


def _does(other: OtherTraffic) -> str:
    """What the row of ``other`` does with that, and at which settings."""
    kept = "keeps up" if other.row.figures is None or not has_targets(other.workload) else "keeps that"
    return f"{name(other.row)} {kept}{_settings(other.row)}"


def _kept_up_with(row: ModeRow) -> str:
    """The most requests per second that ``row`` keeps up with, rounded down."""
    capacity_per_s = _figures(row).mid.capacity_per_s or 0.0
    return f"{rounded_down(KEEPS_UP * capacity_per_s):g}" if capacity_per_s else "0"


def _behind(row: ModeRow) -> str:
    """That every row falls behind, and what ``row``, the fastest, keeps up with."""
    return (
        f"every way falls behind the requests that arrive: {name(row)} serves most and keeps up with at most "
        f"{_kept_up_with(row)} per second{_settings(row)}"
    )


def _short(comparison: Comparison, row: ModeRow) -> tuple[bool, float]:
    """How little more would do: host memory before the dearer memory of GPUs, then by the bytes that are short."""
    if row.hbm is None:
        return True, math.inf
    if row.hbm.unused_bytes < 0:
        return True, -row.hbm.unused_bytes
    held = comparison.request.host_memory_bytes or 0
    return False, 0.0 if row.host is None else sum(row.host.values()) - held


def missed_targets(comparison: Comparison) -> tuple[MissedTarget, ...]:
    """Targets that no row keeps which runs and keeps up with what arrives; () where some row wins."""
    rows = comparison.keeping_up
    if comparison.best is not None or not rows:
        return ()
    workload = comparison.request.workload
    found = []
    for field, said, asked_ms in _asked(workload):
        nearest = min(rows, key=lambda row: _p95_ms(row, field))
        if _p95_ms(nearest, field) > asked_ms:
            found.append(MissedTarget(field, said, asked_ms, _p95_ms(nearest, field), nearest))
    return tuple(found)


def name(row: ModeRow) -> str:
    """A row in words: its mode, GPUs and spread."""
    gpus = row.way.parallel.gpus
    return f"{_way_name(row)} on {counted(gpus, 'GPU')} ({row.way.spread})"


def _way_name(row: ModeRow) -> str:
    cache = {None: "", "none": " without a cache", "lru": " with an LRU cache"}[row.way.cache]
    return f"{row.way.mode.value}{cache}"


def _at_a_rate(comparison: Comparison, best: ModeRow) -> list[str]:
    """What decides where requests arrive at a rate: all that keep up deliver as many tokens."""
    if comparison.request.workload.arrival_rate_per_s is None:
        return []
    running = [row for row in comparison.rows if row.runs]
    behind = len(running) - len(comparison.keeping_up)
    who = (
        "every way that runs"
        if not behind
        else f"{len(comparison.keeping_up)} of {len(running)} ways that run"
    )
    parts = [
        f"{who} keep{'' if behind else 's'} up with what arrives, so tokens/s do not rank: the fewest "
        "GPUs win, and on them the shortest TPOT"
    ]
    kept = [row for row in comparison.rows if comparison.keeps_targets(row)]
    shortest = min(kept, key=lambda row: _p95_ms(row, "tpot_ms"))
    if _p95_ms(shortest, "tpot_ms") < (1 - TIE) * _p95_ms(best, "tpot_ms"):
        parts.append(
            f"the shortest TPOT of all: {name(shortest)}, {duration(1e3 * _p95_ms(shortest, 'tpot_ms'))}"
        )
    return parts


def _nothing(comparison: Comparison) -> str:
    *fewer, last = comparison.request.gpus
    counts = ", ".join([*map(str, fewer), counted(last, "GPU")])
    fitting = [row for row in comparison.rows if row.figures is not None]
    if not fitting:
        lines = dict.fromkeys(row.obstacle.line for row in comparison.rows if row.obstacle is not None)
        return f"nothing fits on {counts}: it breaks at {', '.join(lines)}"
    running = [row for row in fitting if row.runs]
    if not running:
        return f"nothing that fits on {counts} runs: {fitting[0].stopper}"
    if not comparison.keeping_up:
        return _behind(max(running, key=lambda row: _figures(row).mid.capacity_per_s or 0.0))
    return f"no way keeps the targets: {_missed(comparison)}"


def _missed(comparison: Comparison) -> str:
    """What every row misses, and the row that misses least of all targets together."""
    workload = comparison.request.workload
    closest = min(comparison.keeping_up, key=lambda row: target_excess(_figures(row).mid, workload))
    parts = [f"the closest is {name(closest)} with {_misses(comparison, closest)}{_settings(closest)}"]
    missed = missed_targets(comparison)
    if missed:
        names = " and the ".join(f"{each.name} target" for each in missed)
        nearest = [
            f"{name(each.row)} comes nearest with {_against(each)}"
            for each in missed
            if each.row is not closest
        ]
        asked = len(_asked(workload))
        rows = "every row" if asked == 1 else "at the settings that come nearest to both, every row"
        parts.append("; ".join([f"{rows} misses the {names}", *nearest]))
    else:
        parts.append("each target is kept by some row, but none was found that keeps both")
    return "; ".join(parts)


def _misses(comparison: Comparison, row: ModeRow) -> str:
    workload = comparison.request.workload
    return " and ".join(
        _against(MissedTarget(field, said, asked_ms, _p95_ms(row, field), row))
        for field, said, asked_ms in _asked(workload)
        if _p95_ms(row, field) > asked_ms
    )


def _asked(workload: Workload) -> list[tuple[str, str, float]]:
    """The targets there are: field, what it is called, and milliseconds."""
    targets = (("tpot_ms", "TPOT", workload.slo_tpot_ms), ("ttft_ms", "TTFT", workload.slo_ttft_ms))
    return [(field, said, asked_ms) for field, said, asked_ms in targets if asked_ms is not None]


def _against(missed: MissedTarget) -> str:
    digits = telling_digits(missed.reached_ms, missed.asked_ms, 4)
    reached, asked = (duration(1e3 * each, digits) for each in (missed.reached_ms, missed.asked_ms))
    close = missed.factor < 1.005
    by = excess_percent(missed.reached_ms, missed.asked_ms) if close else f"{missed.factor:.2f}x"
    return f"{missed.name} p95 of {reached} where {asked} is asked ({by})"


def _doubt(comparison: Comparison, best: ModeRow) -> str | None:
    """What the slow end of the winner's band does to it, and the simplest row that it does nothing to."""
    if comparison.keeps_targets_slow(best):
        return None
    high = _figures(best).bands.ttft_ms_p95.high
    what = "misses a target" if math.isfinite(high) else "falls behind the requests that arrive"
    sure = [row for row in comparison.rows if comparison.keeps_targets_slow(row)]
    then = "no row does better" if not sure else f"{name(sure[0])} does not"
    return f"not sure: at the slow end of its band it {what}; {then}"


def _reached(row: ModeRow) -> str:
    figures = _figures(row)
    rate, mid = figures.bands.output_tokens_per_s, figures.mid
    return (
        f"{figure(rate.mid, 1)} tokens/s ({figure(rate.low, 1)} to {figure(rate.high, 1)}), TPOT p95 "
        f"{duration(1e3 * mid.tpot_ms.p95)}, TTFT p95 {duration(1e3 * mid.ttft_ms.p95)}"
    )


def _settings(row: ModeRow) -> str:
    if row.settings is None:
        return ""
    chosen = row.settings
    return f", at {counted(chosen.max_running_requests, 'running request')} and chunks of {chosen.chunk_tokens:,}"


def _tie(rows: Sequence[ModeRow]) -> str:
    """What the best row is no faster than."""
    return f"tied within {TIE:.0%} with {_names(rows)}; this is the simplest of them"


def _names(rows: Iterable[ModeRow]) -> str:
    names = [name(row) for row in rows]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _p95_ms(row: ModeRow, field: str) -> float:
    mid = _figures(row).mid
    return mid.tpot_ms.p95 if field == "tpot_ms" else mid.ttft_ms.p95


def _figures(row: ModeRow) -> ModeFigures:
    if row.figures is None:
        raise ValueError("a row that does not fit has no figures")
    return row.figures
