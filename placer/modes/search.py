"""The settings at which a way of running a model serves a workload best, and what clients see there."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from placer.band import figure_bands
from placer.demand import MemoryDemand
from placer.hbm import ServerSettings
from placer.modes.mode import ModeFigures
from placer.modes.request import CompareRequest
from placer.modes.step_times import ModeTimes
from placer.prediction import level_server
from placer.profiler.factor import UNCALIBRATED, Factors
from placer.profiler.uncertainty import Uncertainty
from placer.remedy import largest
from placer.serving import ServingFigures, serving_figures
from placer.workload import Workload


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

    Those that keep up with what arrives come first.

    ``times_of`` gives the times of a server that holds so many experts per layer. When none keeps them, the one
    that misses by the smallest factor. With more running requests TPOT grows and TTFT, the wait for a place
    included, shrinks: of every size of chunks the most that TPOT allows are found by bisection.
    """
    timed: list[tuple[float, int, Candidate]] = []
    for demand in demands:
        times = times_of(demand.hot_per_layer)
        token_us = times.output_token_us(demand.settings)
        timed.append((token_us, len(timed), Candidate(demand, times)))
    found = _Played([candidate for _, _, candidate in sorted(timed, key=lambda entry: entry[:2])], request)
    if not found.keeps(0):
        found.play_most_of_every_chunk()
    kept = [index for index in sorted(found.figures) if found.keeps(index)]
    if kept:
        best = min(kept, key=lambda index: (found.figures[index].falls_behind, index))
    else:
        best = min(found.figures, key=lambda index: (found.excess(index), index))
    return found.ordered[best], found.figures[best]


@dataclass
class _Played:
    """Figures of those of ``ordered``, the fastest first, that were played, by their place."""

    ordered: Sequence[Candidate]
    request: CompareRequest
    figures: dict[int, ServingFigures] = field(default_factory=dict)

    def keeps(self, index: int) -> bool:
        return self.excess(index) <= 1.0

    def excess(self, index: int) -> float:
        return target_excess(self._figures(index), self.request.workload)

    def play_most_of_every_chunk(self) -> None:
        """Of every size of chunks the most running requests of which TPOT is not what misses, and the next more."""
        by_chunk: dict[int, list[int]] = {}
        for index, candidate in enumerate(self.ordered):
            by_chunk.setdefault(candidate.settings.chunk_tokens, []).append(index)
        for places in by_chunk.values():
            places.sort(key=lambda index: self.ordered[index].settings.max_running_requests)
            self._bisect(places)

    def _bisect(self, places: Sequence[int]) -> None:
        largest(0, len(places) - 1, lambda place: self._tpot_allows(places[place]))

    def _tpot_allows(self, index: int) -> bool:
        return tpot_allows(*target_excesses(self._figures(index), self.request.workload))

    def _figures(self, index: int) -> ServingFigures:
        if index not in self.figures:
            candidate = self.ordered[index]
            self.figures[index] = play(candidate.times, candidate.settings, self.request)
        return self.figures[index]


def play(
    times: ModeTimes, settings: ServerSettings, request: CompareRequest, factors: Factors = UNCALIBRATED
) -> ServingFigures:
    """What clients see of a server of ``settings`` when its times are taken by ``factors``."""
    server = level_server(settings, request.workload, request.scheduler, sglang_page_tokens=times.page_tokens)
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
    return max(target_excesses(figures, workload))


def target_excesses(figures: ServingFigures, workload: Workload) -> tuple[float, float]:
    """p95 of TPOT and of TTFT over their targets, each 0 without one."""
    pairs = ((workload.slo_tpot_ms, figures.tpot_ms.p95), (workload.slo_ttft_ms, figures.ttft_ms.p95))
    tpot, ttft = (0.0 if target is None else reached / target for target, reached in pairs)
    return tpot, ttft


def tpot_allows(tpot: float, ttft: float) -> bool:
    """Whether TPOT, so many times its target, is kept or misses less than TTFT does: more requests may run then."""
    return tpot <= max(1.0, ttft)
