"""The settings at which a way of running a model serves a workload best, and what clients see there."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from placer.band import figure_bands
from placer.demand import MemoryDemand
from placer.hbm import ServerSettings
from placer.modes.mode import ModeFigures
from placer.modes.request import CompareRequest
from placer.modes.step_times import ModeTimes
from placer.prediction import level_server
from placer.profiler.factor import UNCALIBRATED, Factors
from placer.profiler.uncertainty import Uncertainty
from placer.serving import ServingFigures, serving_figures
from placer.workload import Workload

_PLAYED = 12
"""Settings that are played at most when targets are missed."""
_SLACK = 1.1
"""Mean steps may be this much longer than a target and still be played: fewer requests may run at a time."""


@dataclass(frozen=True)
class Candidate:
    """A server that fits, and its times."""

    demand: MemoryDemand
    times: ModeTimes

    @property
    def settings(self) -> ServerSettings:
        """Of the server."""
        return self.demand.settings


def search(
    demands: Iterable[MemoryDemand],
    times_of: Callable[[int], ModeTimes],
    request: CompareRequest,
) -> tuple[Candidate, ServingFigures]:
    """The fastest of ``demands`` (not empty) by mean time per output token whose p95 latencies keep the targets.

    ``times_of`` gives the times of a server that holds so many experts per layer. When none keeps them, the one
    that misses by the smallest factor.
    """
    timed: list[tuple[float, int, Candidate]] = []
    for demand in demands:
        times = times_of(demand.hot_per_layer)
        token_us = times.output_token_us(demand.settings)
        timed.append((token_us, len(timed), Candidate(demand, times)))
    ordered = [candidate for _, _, candidate in sorted(timed, key=lambda entry: entry[:2])]
    possible = [candidate for candidate in ordered if _least_excess(candidate, request.workload) <= _SLACK]
    least = min(ordered, key=lambda candidate: _least_excess(candidate, request.workload))
    # Where a bare step or prompt takes too long everywhere: the fastest, and the one whose step and prompt miss least.
    # That one is also tried where many faster ones miss: it keeps what can be kept.
    tried = (possible or ordered[:1])[: _PLAYED - 1]
    found: list[tuple[float, int, Candidate, ServingFigures]] = []
    for candidate in tried if least in tried else [*tried, least]:
        figures = play(candidate.times, candidate.settings, request)
        excess = target_excess(figures, request.workload)
        if excess <= 1.0:
            return candidate, figures
        found.append((excess, len(found), candidate, figures))
    _, _, candidate, figures = min(found, key=lambda entry: entry[:2])
    return candidate, figures


def play(
    times: ModeTimes, settings: ServerSettings, request: CompareRequest, factors: Factors = UNCALIBRATED
) -> ServingFigures:
    """What clients see of a server of ``settings`` when its times are taken by ``factors``."""
    server = level_server(settings, request.workload, request.scheduler)
    return serving_figures(
        times.step_times(settings, factors, request.seed), server, request.workload, request.seed
    )


def banded(
    candidate: Candidate, mid: ServingFigures, uncertainty: Uncertainty, request: CompareRequest
) -> ModeFigures:
    """``mid`` between figures of the same server with every part of its times at the fast and at the slow end."""
    fast, slow = (
        play(candidate.times, candidate.settings, request, factors)
        for factors in (uncertainty.fastest, uncertainty.slowest)
    )
    return ModeFigures(mid, figure_bands(fast, mid, slow))


def target_excess(figures: ServingFigures, workload: Workload) -> float:
    """The largest p95 latency over its target; 0 without targets."""
    pairs = ((workload.slo_tpot_ms, figures.tpot_ms.p95), (workload.slo_ttft_ms, figures.ttft_ms.p95))
    return max((reached / target for target, reached in pairs if target is not None), default=0.0)


def _least_excess(candidate: Candidate, workload: Workload) -> float:
    """As `target_excess`, of a request that never waits for others' prompts or for a place."""
    settings, times = candidate.settings, candidate.times
    # Of an open loop's requests fewer may run at a time.
    running = 1 if workload.is_open_loop else settings.max_running_requests
    tpot_ms = times.decode_step_us(settings, running) / 1e3
    ttft_ms = times.prefill_us(settings) / 1e3
    pairs = ((workload.slo_tpot_ms, tpot_ms), (workload.slo_ttft_ms, ttft_ms))
    return max((reached / target for target, reached in pairs if target is not None), default=0.0)
