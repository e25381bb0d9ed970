"""A benchmark's figures beside their predictions: its own requests, played on the placement's step times."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from placer.hbm import ServerSettings
from placer.kv_pool import sglang_page_tokens
from placer.measured_figure import MeasuredFigure
from placer.model.spec import ModelSpec
from placer.placement_times import Floats, Ints, PlacementTimes, size_grid
from placer.profiler.factor import UNCALIBRATED, Factors
from placer.profiler.request_play import CountedSteps, MeanStepTimes, PlayFigures, RequestPlay, play_requests
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.simulation import simulate
from placer.profiler.serving.traffic import Traffic, closed_loop, gamma_spaced, poisson
from placer.profiler.serving_benchmark import ServingBenchmark
from placer.profiler.steps import StepKind

VLLM_PAGE_TOKENS = 16
"""KV tokens of a block of vLLM 0.32 on a GPU, unless --block-size says otherwise."""
_ARRIVAL_SEED = 0
_KINDS = (StepKind.DECODE, StepKind.PREFILL)


def benchmark_server(model: ModelSpec, settings: ServerSettings, scheduler: Scheduler) -> Server:
    """The server of ``settings`` that a benchmark measured."""
    return Server(
        scheduler,
        max_running=settings.max_running_requests,
        kv_tokens=settings.kv_tokens,
        chunk_tokens=settings.chunk_tokens,
        page_tokens=sglang_page_tokens(model) if scheduler is Scheduler.SGLANG else VLLM_PAGE_TOKENS,
    )


def benchmark_traffic(run: ServingBenchmark) -> Traffic:
    """The requests of ``run``: as its clients send them, when they arrived, or at its rate where that is unknown."""
    inputs, outputs = np.array(run.input_tokens), np.array(run.output_tokens)
    if run.rate_per_s is None:
        return closed_loop(run.clients, inputs, outputs)
    if run.arrivals_s is None and run.burstiness == 1.0:
        return poisson(run.rate_per_s, inputs, outputs, seed=_ARRIVAL_SEED)
    if run.arrivals_s is None:
        return gamma_spaced(run.rate_per_s, run.burstiness, inputs, outputs, seed=_ARRIVAL_SEED)
    order = np.argsort(run.arrivals_s, kind="stable")
    return Traffic(inputs[order], outputs[order], np.array(run.arrivals_s)[order] * 1e6, 0)


class BenchmarkPlay:
    """The requests of ``run`` on ``server``, whose mean step times are those of a placement under any factors.

    Raises
    ------
    BadInputError
        When the KV pool can never hold one of the requests.
    """

    def __init__(self, run: ServingBenchmark, server: Server, times: PlacementTimes) -> None:
        self._traffic = benchmark_traffic(run)
        self._server = server
        self._times = times
        self._served = lru_cache(maxsize=64)(self._serve)
        self._play = play_requests(self._traffic, server) if self._traffic.arrival_us is None else None
        if self._play is None:
            # Which steps an open loop runs depends on how long they take: grids start with what must come, and grow.
            prompt = min(int(self._traffic.prompt_tokens.max()), server.chunk_tokens)
            self._grids = {StepKind.DECODE: [1], StepKind.PREFILL: [prompt]}
            first, _ = self._serve(UNCALIBRATED)
            self._grids = {kind: size_grid(*_sizes(first, kind)) for kind in self._grids}
        else:
            self._grids = {kind: size_grid(*_sizes(self._play, kind)) for kind in _KINDS}

    def curve(self, kind: StepKind, factors: Factors) -> Callable[[Ints], Floats]:
        """Mean microseconds of steps of ``kind`` by size."""
        return self._times.curve(kind, self._grids[kind], factors)

    def figures(self, factors: Factors) -> PlayFigures:
        """What the client would state."""
        if self._play is not None:
            return self._play.figures(
                self.curve(StepKind.DECODE, factors), self.curve(StepKind.PREFILL, factors)
            )
        return self._served(factors)[1]

    def largest(self, factors: Factors) -> dict[StepKind, int]:
        """The largest steps of each kind that run under ``factors``."""
        steps = self._play or self._served(factors)[0]
        return {kind: int(_sizes(steps, kind)[0].max(initial=0)) for kind in _KINDS}

    def median_decode_us(self, factors: Factors) -> float:
        """Time of the step between most tokens: a step of r requests is an interval in r of them.

        Of a single request where every step holds prompts under ``factors``.
        """
        sizes, tokens = _sizes(self._play or self._served(factors)[0], StepKind.DECODE)
        median = _weighted_median(sizes, tokens) if sizes.size else 1
        return float(self.curve(StepKind.DECODE, factors)(np.array([median]))[0])

    def _serve(self, factors: Factors) -> tuple[CountedSteps, PlayFigures]:
        """An open loop under ``factors``; the grids grow to the largest steps that it runs."""
        while True:
            decode, prefill = (self.curve(kind, factors) for kind in (StepKind.DECODE, StepKind.PREFILL))
            steps = CountedSteps(MeanStepTimes(decode, prefill))
            served = simulate(self._traffic, self._server, steps)
            grown = False
            for kind, grid in self._grids.items():
                largest = int(_sizes(steps, kind)[0].max(initial=0))
                if largest > grid[-1]:
                    grid.append(largest)
                    grown = True
            if not grown:
                figures = PlayFigures(
                    served.ttft_ms().mean, served.tpot_ms().mean, served.output_tokens_per_s
                )
                return steps, figures


def benchmark_figures(
    run: ServingBenchmark, play: BenchmarkPlay, times: PlacementTimes, label: str
) -> tuple[MeasuredFigure, ...]:
    """TPOT and TTFT, which factors are fitted to, and what checks them: throughput and the median step.

    TTFT only checks, too, where prefill chunks lie beyond what the kernels were timed at: factors are not fitted to
    an extrapolation.
    """
    played = lru_cache(maxsize=64)(play.figures)
    played(UNCALIBRATED)
    figures = [
        MeasuredFigure(
            f"TPOT mean{label}",
            "ms",
            run.mean_tpot_ms,
            lambda factors: played(factors).mean_tpot_ms,
            run.requests,
            fitted=True,
        ),
        MeasuredFigure(
            f"TTFT mean{label}",
            "ms",
            run.mean_ttft_ms,
            lambda factors: played(factors).mean_ttft_ms,
            run.requests,
            fitted=not times.extrapolates(StepKind.PREFILL),
        ),
        MeasuredFigure(
            f"output tokens{label}",
            "tokens/s",
            run.output_tokens_per_s,
            lambda factors: played(factors).output_tokens_per_s,
            run.requests,
            fitted=False,
        ),
    ]
    # A prompt may be part of every step that vLLM runs.
    if run.median_itl_ms is not None and play.largest(UNCALIBRATED)[StepKind.DECODE]:
        figures.append(
            MeasuredFigure(
                f"decode step (median ITL){label}",
                "ms",
                run.median_itl_ms,
                lambda factors: play.median_decode_us(factors) / 1e3,
                run.requests,
                fitted=False,
            )
        )
    return tuple(figures)


def _sizes(steps: RequestPlay | CountedSteps, kind: StepKind) -> tuple[Ints, Ints]:
    """Sizes of the steps of ``kind``, and how many tokens they hold in all."""
    of_kind = np.asarray(steps.prefill) == (kind is StepKind.PREFILL)
    sizes = np.asarray(steps.size, dtype=np.int64)[of_kind]
    return sizes, sizes * np.asarray(steps.count)[of_kind]


def _weighted_median(values: Ints, weights: Ints) -> int:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return int(values[order][np.searchsorted(reached, reached[-1] / 2)])
