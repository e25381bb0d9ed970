"""A benchmark's figures beside their predictions: its own requests, played on the placement's step times."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from placer.hbm import ServerSettings
from placer.measured_figure import MeasuredFigure
from placer.profiler.factor import UNCALIBRATED, Factors
from placer.profiler.request_play import PlayFigures, RequestPlay, play_requests
from placer.profiler.serving_benchmark import ServingBenchmark
from placer.profiler.steps import StepKind
from placer.step_times import Floats, Ints, StepTimes


def benchmark_play(run: ServingBenchmark, settings: ServerSettings) -> RequestPlay:
    """The steps that a server of ``settings`` runs for the requests of ``run``.

    Requests run at a time as slots and the KV pool allow, which holds so many of mean length.
    """
    request_tokens = (sum(run.input_tokens) + sum(run.output_tokens)) / run.requests
    return play_requests(
        input_tokens=run.input_tokens,
        output_tokens=run.output_tokens,
        clients=run.clients,
        max_running=max(1, min(settings.max_running_requests, int(settings.kv_tokens // request_tokens))),
        chunk_tokens=settings.chunk_tokens,
    )


def benchmark_figures(
    run: ServingBenchmark, play: RequestPlay, times: StepTimes, label: str
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
