"""A benchmark's figures beside their predictions: its own requests, played on the placement's step times."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from placer.hbm import ServerSettings
from placer.kv_pool import sglang_page_tokens
from placer.measured_figure import MeasuredFigure
from placer.model.spec import ModelSpec
from placer.placement_times import Floats, Ints, PlacementTimes
from placer.profiler.factor import UNCALIBRATED, Factors
from placer.profiler.request_play import PlayFigures, RequestPlay, play_requests
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.traffic import closed_loop
from placer.profiler.serving_benchmark import ServingBenchmark
from placer.profiler.steps import StepKind


def benchmark_play(run: ServingBenchmark, model: ModelSpec, settings: ServerSettings) -> RequestPlay:
    """The steps that an SGLang server of ``settings`` runs for the requests of ``run``.

    Raises
    ------
    BadInputError
        When the KV pool can never hold one of the requests.
    """
    traffic = closed_loop(run.clients, np.array(run.input_tokens), np.array(run.output_tokens))
    server = Server(
        Scheduler.SGLANG,
        max_running=settings.max_running_requests,
        kv_tokens=settings.kv_tokens,
        chunk_tokens=settings.chunk_tokens,
        page_tokens=sglang_page_tokens(model),
    )
    return play_requests(traffic, server)


def benchmark_figures(
    run: ServingBenchmark, play: RequestPlay, times: PlacementTimes, label: str
) -> tuple[MeasuredFigure, ...]:
    """TPOT and TTFT, which factors are fitted to, and what checks them: throughput and the median step.

    TTFT only checks, too, where prefill chunks lie beyond what the kernels were timed at: factors are not fitted to
    an extrapolation.
    """
    decode, prefill = ~play.prefill, play.prefill
    # A decode step of r requests is an interval between tokens in r of them.
    median_size = _weighted_median(play.size[decode], play.size[decode] * play.count[decode])

    def curve(kind: StepKind, chosen: NDArray[np.bool_], factors: Factors) -> Callable[[Ints], Floats]:
        sizes = play.size[chosen]
        return times.curve(kind, sizes, sizes * play.count[chosen], factors)

    @lru_cache(maxsize=64)
    def played(factors: Factors) -> PlayFigures:
        return play.figures(
            curve(StepKind.DECODE, decode, factors), curve(StepKind.PREFILL, prefill, factors)
        )

    def step_ms(factors: Factors) -> float:
        return float(curve(StepKind.DECODE, decode, factors)(np.array([median_size]))[0]) / 1e3

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
                f"decode step{label}", "ms", run.median_itl_ms, step_ms, run.requests, fitted=False
            )
        )
    return tuple(figures)


def _weighted_median(values: Ints, weights: Ints) -> int:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return int(values[order][np.searchsorted(reached, reached[-1] / 2)])
