"""Latency targets at the 95th percentile: which predictions keep them, and what is said when none does."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from placer.band import FigureBands
from placer.errors import InfeasibleError
from placer.hbm import ServerSettings
from placer.prediction import Prediction
from placer.units import counted, duration, excess_percent, rounded_up, telling_digits
from placer.workload import Workload

MISSED = "warning: the requests that are only reported on miss "
"""How the note starts that says which targets a plan misses on requests that it was not chosen on."""


@dataclass(frozen=True)
class Reached:
    """What a plan reaches, simulated, and at which settings."""

    settings: ServerSettings
    figures: Prediction


def duration_beside(reached_ms: float, target_ms: float | None, digits: int) -> str:
    """``reached_ms`` in at least so many digits, and in as many as show whether it keeps ``target_ms``."""
    if target_ms is not None:
        digits = telling_digits(reached_ms, target_ms, digits)
    return duration(1e3 * reached_ms, digits)


@dataclass(frozen=True)
class _Target:
    flag: str
    target_ms: float
    p95_ms: Callable[[Prediction], float]

    def reached(self, figures: Prediction, digits: int = 4) -> str:
        """What ``figures`` reach of it, in digits that show whether that keeps it."""
        return duration_beside(self.p95_ms(figures), self.target_ms, digits)

    def excess(self, figures: Prediction) -> str:
        """By how much ``figures`` are beyond it."""
        return excess_percent(self.p95_ms(figures), self.target_ms)


def has_targets(workload: Workload) -> bool:
    """Whether any target was given."""
    return bool(_targets(workload))


def meets_targets(workload: Workload, figures: Prediction) -> bool:
    """Whether ``figures`` keep every target of ``workload``; an unpredicted TTFT keeps none."""
    return all(target.p95_ms(figures) <= target.target_ms for target in _targets(workload))


def missed_flags(workload: Workload, figures: Prediction) -> tuple[str, ...]:
    """Flags of the targets that ``figures`` miss."""
    return tuple(target.flag for target in _targets(workload) if target.p95_ms(figures) > target.target_ms)


def p95_ms(flag: str, figures: Prediction) -> float:
    """What ``figures`` reach of the target named ``flag``; infinite where it is not predicted."""
    return figures.tpot_ms_p95 if flag == "--slo-tpot" else _ttft_ms(figures)


def missed_text(workload: Workload, figures: Prediction) -> str:
    """What ``figures`` reach of the targets that they miss; empty where they keep all."""
    return " and ".join(
        f"{target.flag} of {target.target_ms:g} ms by {target.excess(figures).removeprefix('+')} "
        f"({target.reached(figures)} at p95)"
        for target in _targets(workload)
        if target.p95_ms(figures) > target.target_ms
    )


def slow_missed_text(workload: Workload, figures: Prediction, bands: FigureBands) -> str:
    """What ``bands`` reach at their slow end of the targets that ``figures`` keep and it misses; empty without such."""
    slow = replace(
        figures,
        tpot_ms_p95=bands.tpot_ms_p95.high,
        ttft_ms_p95=bands.ttft_ms_p95.high,
    )
    return " and ".join(
        f"{target.flag} of {target.target_ms:g} ms"
        + (f" ({target.reached(slow, 3)} at p95)" if math.isfinite(target.p95_ms(slow)) else "")
        for target in _targets(workload)
        if target.p95_ms(figures) <= target.target_ms < target.p95_ms(slow)
    )


def targets_missed(
    workload: Workload, tried: Sequence[Reached], advice: str, *, goodput: bool = False
) -> InfeasibleError:
    """The error when none of ``tried`` keeps the targets: each target's best, by how much and where it is missed.

    ``advice`` says what would meet them. For ``goodput`` not a single request does.
    """
    missed = []
    for target in _targets(workload):
        best = min(tried, key=lambda each: target.p95_ms(each.figures))
        reached = target.p95_ms(best.figures)
        if math.isinf(reached):
            why = (
                "prompts are left out, so it is not predicted"
                if best.figures.serving is None or not best.figures.serving.falls_behind
                else "the server falls behind the arrivals at all settings"
            )
            missed.append(f"{target.flag} of {target.target_ms:g} ms ({why})")
        elif reached > target.target_ms:
            missed.append(
                f"{target.flag} of {target.target_ms:g} ms (best level reaches {target.reached(best.figures)} at p95, "
                f"{target.excess(best.figures)}: {settings_text(best.settings)})"
            )
    if not missed:
        missed.append(_both(workload, tried))
    nothing = "no request at any level keeps " if goodput else "no level meets "
    return InfeasibleError(nothing + " and ".join(missed), advice)


def relaxed(workload: Workload, reached: Sequence[Reached]) -> str:
    """The flags of targets that the plan nearest to them keeps: each that it misses is raised to what it reaches.

    Raising one target alone is preferred, where some plan keeps the other. Empty where nothing finite is predicted.
    """
    targets = _targets(workload)
    number = nearest(workload, reached)
    if number is None:
        return ""
    best = reached[number].figures
    flags = [
        f"{target.flag} {rounded_up(target.p95_ms(best))}"
        for target in targets
        if target.p95_ms(best) > target.target_ms
    ]
    kept = ", the other target kept" if len(flags) < len(targets) else ""
    return f"relax to {' '.join(flags)}{kept}"


def nearest(workload: Workload, reached: Sequence[Reached]) -> int | None:
    """Which plan of ``reached`` misses the fewest targets, and by the least; None where nothing finite is predicted."""

    def raised(number: int) -> tuple[int, float]:
        figures = reached[number].figures
        return len(missed_flags(workload, figures)), excess(workload, figures)

    predicted = [number for number, each in enumerate(reached) if excess(workload, each.figures) < math.inf]
    return min(predicted, key=raised, default=None)


def worse(one: Prediction, other: Prediction) -> Prediction:
    """``one`` with the longer of both latencies at the 95th percentile."""
    ttft_ms = max((_ttft_ms(one), _ttft_ms(other)))
    return replace(
        one,
        tpot_ms_p95=max(one.tpot_ms_p95, other.tpot_ms_p95),
        ttft_ms_p95=None if math.isinf(ttft_ms) else ttft_ms,
    )


def settings_text(settings: ServerSettings) -> str:
    """Settings in words."""
    running = settings.max_running_requests
    return f"{counted(running, 'running request')}, chunk {settings.chunk_tokens:,}, {settings.kv_dtype} KV"


def excess(workload: Workload, figures: Prediction) -> float:
    """The largest ratio of a latency to its target, at the 95th percentile: up to 1 where all are kept."""
    return max(target.p95_ms(figures) / target.target_ms for target in _targets(workload))


def _both(workload: Workload, tried: Sequence[Reached]) -> str:
    """Each target alone is kept by some plan: what the plan nearest to both misses."""
    best = min(tried, key=lambda each: excess(workload, each.figures))
    reached = " and ".join(
        f"{target.flag} of {target.target_ms:g} ms with {target.reached(best.figures)} ({target.excess(best.figures)})"
        for target in _targets(workload)
    )
    return (
        "both latency targets at once (each alone is reached by some level); the nearest answers "
        f"{reached}, at {settings_text(best.settings)}"
    )


def _targets(workload: Workload) -> tuple[_Target, ...]:
    pairs = (
        ("--slo-tpot", workload.slo_tpot_ms, lambda figures: figures.tpot_ms_p95),
        ("--slo-ttft", workload.slo_ttft_ms, _ttft_ms),
    )
    return tuple(_Target(flag, target, p95) for flag, target, p95 in pairs if target is not None)


def _ttft_ms(figures: Prediction) -> float:
    return math.inf if figures.ttft_ms_p95 is None else figures.ttft_ms_p95
