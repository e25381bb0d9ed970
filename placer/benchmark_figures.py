"""A benchmark's figures beside their predictions: its own requests, played on the placement's step times."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from placer.hbm import ServerSettings
from placer.kv_pool import sglang_page_tokens
from placer.measured_figure import MeasuredFigure
from placer.model.spec import ModelSpec
from placer.placement_times import Floats, Ints, PlacementTimes
from placer.profiler.factor import UNCALIBRATED, Factors
from placer.profiler.request_play import CountedSteps, MeanStepTimes, PlayFigures, play_requests
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.simulation import simulate
from placer.profiler.serving.traffic import Traffic, closed_loop, poisson
from placer.profiler.serving_benchmark import ServingBenchmark
from placer.profiler.steps import StepKind

VLLM_PAGE_TOKENS = 16
"""KV tokens of a block of vLLM 0.32 on a GPU, unless --block-size says otherwise."""
_ARRIVAL_SEED = 0


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
    if run.arrivals_s is None:
        return poisson(run.rate_per_s, inputs, outputs, seed=_ARRIVAL_SEED)
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
        self._play = play_requests(self._traffic, server) if self._traffic.arrival_us is None else None
        self._steps = self._play or self._run_steps()

    def _run_steps(self) -> CountedSteps:
        """The steps of an open loop without factors: which they are depends on how long they take."""
        ladders = (_ladder(self._server.max_running), _ladder(self._server.chunk_tokens))
        decode, prefill = (
            self._times.curve(kind, sizes, np.ones_like(sizes), UNCALIBRATED)
            for kind, sizes in zip((StepKind.DECODE, StepKind.PREFILL), ladders, strict=True)
        )
        steps = CountedSteps(MeanStepTimes(decode, prefill))
        simulate(self._traffic, self._server, steps)
        return steps

    def curve(self, kind: StepKind, factors: Factors) -> Callable[[Ints], Floats]:
        """Mean microseconds of steps of ``kind`` by size."""
        prefill = np.asarray(self._steps.prefill) == (kind is StepKind.PREFILL)
        sizes = np.asarray(self._steps.size, dtype=np.int64)[prefill]
        return self._times.curve(kind, sizes, sizes * np.asarray(self._steps.count)[prefill], factors)

    def figures(self, factors: Factors) -> PlayFigures:
        """What the client would state."""
        decode, prefill = (self.curve(kind, factors) for kind in (StepKind.DECODE, StepKind.PREFILL))
        if self._play is not None:
            return self._play.figures(decode, prefill)
        served = simulate(self._traffic, self._server, MeanStepTimes(decode, prefill))
        return PlayFigures(served.ttft_ms().mean, served.tpot_ms().mean, served.output_tokens_per_s)

    @property
    def median_decode_size(self) -> int:
        """Requests of the step between most tokens: a step of r requests is an interval in r of them."""
        decode = ~np.asarray(self._steps.prefill)
        sizes = np.asarray(self._steps.size, dtype=np.int64)[decode]
        return _weighted_median(sizes, sizes * np.asarray(self._steps.count)[decode])


def benchmark_figures(
    run: ServingBenchmark, play: BenchmarkPlay, times: PlacementTimes, label: str
) -> tuple[MeasuredFigure, ...]:
    """TPOT and TTFT, which factors are fitted to, and what checks them: throughput and the median step.

    TTFT only checks, too, where prefill chunks lie beyond what the kernels were timed at: factors are not fitted to
    an extrapolation.
    """
    played = lru_cache(maxsize=64)(play.figures)
    median_size = np.array([play.median_decode_size])
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
    if run.median_itl_ms is not None:
        figures.append(
            MeasuredFigure(
                f"decode step (median ITL){label}",
                "ms",
                run.median_itl_ms,
                lambda factors: float(play.curve(StepKind.DECODE, factors)(median_size)[0]) / 1e3,
                run.requests,
                fitted=False,
            )
        )
    return tuple(figures)


def _ladder(most: int) -> Ints:
    """1, 2, 4... and ``most``."""
    return np.unique(np.minimum(2 ** np.arange(most.bit_length() + 1), most))


def _weighted_median(values: Ints, weights: Ints) -> int:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return int(values[order][np.searchsorted(reached, reached[-1] / 2)])
