"""`placer calibrate`: a server's own figures against the prediction, and the factors that bring them together."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from placer import __version__
from placer.benchmark_figures import BenchmarkPlay, benchmark_figures, benchmark_server
from placer.errors import BadInputError
from placer.kt_log_figures import kt_log_figures, timed_layers
from placer.measured_figure import MeasuredFigure
from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument
from placer.placement_times import PlacementTimes
from placer.planned_level import planned_level, planned_workload
from placer.profiler.benchmark_file import BenchmarkFile, distinct_runs
from placer.profiler.calibration import (
    Calibration,
    CalibrationSource,
    contradiction_warnings,
    extreme_warnings,
)
from placer.profiler.factor import FactorName
from placer.profiler.factor_fit import fit_factors
from placer.profiler.kt_timing_log import KtTimingLog
from placer.profiler.profile import Profile
from placer.profiler.profile_use import ProfileUse, check_profile_matches
from placer.profiler.serving.server import Scheduler
from placer.profiler.serving_benchmark import ServingBenchmark
from placer.profiler.trace.importing import check_trace_of
from placer.profiler.trace.split import split_requests
from placer.profiler.trace.trace import Trace
from placer.replays import EVALUATION_SEED, SPLIT_SHARES, Replays
from placer.served_settings import served_mismatches
from placer.units import counted
from placer.untraced import uniform_trace
from placer.workload import MOST_CLIENTS, Workload

LAUNCH_LADEN = (FactorName.HOT, FactorName.TRANSFER)
"""Factors of times that a timing log, made without CUDA graphs, holds launches in."""
_LAUNCHES = (
    "stays: the log was made without CUDA graphs, so its times hold launches that a server with graphs does not pay "
    "(--factors asks for it all the same)"
)
_SCHEDULER_NAMES = {Scheduler.SGLANG: "SGLang", Scheduler.VLLM: "vLLM"}
_FEW_REQUESTS = 4
"""Requests per client below which a benchmark is mostly its start and its end."""


@dataclass(frozen=True)
class CalibrateRequest:
    """What to calibrate with.

    Attributes
    ----------
    names
        Factors that may be fitted; None for all of them, but `LAUNCH_LADEN` to benchmarks alone.
    scheduler
        Whose rules the servers follow; None for what each benchmark's client says, and SGLang's where it says
        nothing.
    force
        Take a server that does not match the placement all the same; the calibration says so.
    seed
        Draws the replayed steps.
    """

    names: tuple[FactorName, ...] | None = None
    scheduler: Scheduler | None = None
    force: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Calibrated:
    """A calibrated profile; ``replaced`` is the calibration that it had before, or None."""

    profile: Profile
    calibration: Calibration
    replaced: Calibration | None

    def document(self) -> dict[str, Any]:
        """The ``calibrate --json`` document."""
        figures = [
            {**asdict(each), "error_before": each.error_before, "error_after": each.error_after}
            for each in self.calibration.figures
        ]
        return {
            **asdict(self.calibration),
            "figures": figures,
            "replaced": None if self.replaced is None else self.replaced.sentence,
        }


def calibrate(
    profile: Profile,
    placement: PlacementDocument,
    model: ModelSpec,
    trace: Trace | None,
    benchmarks: Sequence[BenchmarkFile],
    log: KtTimingLog | None,
    request: CalibrateRequest,
) -> Calibrated:
    """Compare what a server of ``placement`` measured with its prediction, and put factors on ``profile``.

    Predictions are of the kernels' measurements alone: an earlier calibration is replaced, never multiplied.
    The requests of each benchmark are played on replayed steps of the reporting part of ``trace`` (None:
    uniform routing, as a plan without a trace assumes).

    Raises
    ------
    BadInputError
        When trace, profile or placement belong to another model, a server to another placement, or half of a
        benchmark's requests failed (the last two unless forced), or nothing was measured.
    """
    if not benchmarks and log is None:
        raise BadInputError("nothing was measured", "add --benchmark FILE or --kt-log FILE")
    placement.check_model(model)
    kt = placement.kt
    benchmarks, repeated = distinct_runs(benchmarks)
    use = ProfileUse(None if kt is None else kt.threads, placement.cpu_method)
    check_profile_matches(profile, model, tp=placement.tp, use=use)
    if trace is not None:
        check_trace_of(trace, model)
    runs = [run for file in benchmarks for run in file.runs]
    forced = _mismatches(benchmarks, placement, model, force=request.force)
    part = uniform_trace(model, request.seed) if trace is None else _reporting(trace, request.seed)
    replays = Replays(part, request.seed + 2 * EVALUATION_SEED, "decode")

    def step_times(workload: Workload) -> PlacementTimes:
        settings = planned_level(placement).settings
        cost = profile.kernel_cost_model()
        return PlacementTimes(model, cost, placement.hot_mask(), replays, settings, workload, placement.tp)

    figures: list[MeasuredFigure] = []
    notes: list[str] = [*repeated]
    plays: list[tuple[BenchmarkPlay, PlacementTimes]] = []
    for number, run in enumerate(runs, 1):
        times = step_times(_workload(run))
        label = f", run {number}" if len(runs) > 1 else ""
        scheduler = request.scheduler or run.scheduler or Scheduler.SGLANG
        server = benchmark_server(model, planned_level(placement).settings, scheduler)
        play = BenchmarkPlay(run, server, times)
        plays.append((play, times))
        figures += benchmark_figures(run, play, times, label)
        notes += _run_notes(run, number if len(runs) > 1 else None, scheduler)
    if log is not None:
        times = step_times(planned_workload(placement))
        of_log = [name for name in FactorName if name not in LAUNCH_LADEN]
        figures += kt_log_figures(timed_layers(log, placement, times), request.names or of_log)
        notes += [*log.notes, *times.notes()]
    # A log alone says nothing of time added per step, in whatever unit.
    step_scale_us = float(np.mean([run.mean_tpot_ms for run in runs])) * 1e3 if runs else 1e6
    to_fit = [figure.to_fit for figure in figures if figure.fitted]
    fit = fit_factors(to_fit, step_scale_us=step_scale_us, names=request.names or tuple(FactorName))
    if log is not None and request.names is None and not runs:
        fit.reasons.update(dict.fromkeys(LAUNCH_LADEN, _LAUNCHES))
    for play, times in plays:
        # A slower server runs larger steps of an open loop than the one that was predicted.
        notes += times.notes(play.largest(fit.factors))
    if trace is None:
        notes.append("uniform routing was assumed, as in a plan without a trace")
    compared = tuple(figure.calibrated(fit.factors) for figure in figures)
    before, after = (
        _mean_error([made / each.measured for made, each in zip(values, compared, strict=True)])
        for values in ([each.before for each in compared], [each.after for each in compared])
    )
    calibration = Calibration(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        placer_version=__version__,
        factors=fit.factors,
        reasons={name.value: reason for name, reason in fit.reasons.items()},
        alternatives=fit.alternatives,
        figures=compared,
        error_before=before,
        error_after=after,
        sources=(*(_source(file) for file in benchmarks), *((_log_source(log),) if log else ())),
        placement=f"{placement.model.name}, solved {placement.created}, {placement.hot_total:,} experts hot",
        trace="uniform routing assumed" if trace is None else trace.header.source,
        distrust=tuple(
            dict.fromkeys(
                (
                    *extreme_warnings(fit.factors, step_scale_us),
                    *contradiction_warnings(fit.factors, compared, before, after),
                    *(f"warning: forced: {each}" for each in forced),
                    *notes,
                )
            )
        ),
    )
    return Calibrated(replace(profile, calibration=calibration), calibration, profile.calibration)


def _mean_error(ratios: Sequence[float]) -> float:
    """Geometric mean of how far ratios are from 1 in either direction, less 1: twice and half are 100 %."""
    return float(np.expm1(np.mean(np.abs(np.log(ratios)))))


def _mismatches(
    files: Sequence[BenchmarkFile], placement: PlacementDocument, model: ModelSpec, *, force: bool
) -> tuple[str, ...]:
    runs = [(file.path, run) for file in files for run in file.runs]
    found = [
        (path, *mismatch)
        for path, run in runs
        for mismatch in served_mismatches(run.model, run.server, placement, model)
    ]
    found += [
        (
            path,
            f"{run.failed} of {counted(run.failed + run.requests, 'request')} of a benchmark got no answer: the "
            "others ran on a server that was not full",
            "see why in the server's log and run it again, or add --force",
        )
        for path, run in runs
        if run.failed >= run.requests
    ]
    if found and not force:
        path, what, cure = found[0]
        raise BadInputError(f"benchmark {path}: {what}", cure)
    return tuple(dict.fromkeys(what for _, what, _ in found))


def _reporting(trace: Trace, seed: int) -> Trace:
    _, _, reporting = split_requests(trace, SPLIT_SHARES, seed=seed)
    return reporting


def _workload(run: ServingBenchmark) -> Workload:
    """The traffic of a run, as mean lengths."""
    prompt, output = (round(sum(tokens) / run.requests) for tokens in (run.input_tokens, run.output_tokens))
    return Workload(max(1, prompt), max(2, output), min(run.clients, MOST_CLIENTS))


def _run_notes(run: ServingBenchmark, number: int | None, scheduler: Scheduler) -> list[str]:
    """What was measured, and when not to trust it."""
    traffic, name = _workload(run), "the run" if number is None else f"run {number}"
    notes = [
        f"{name} had {_sent(run)}, prompts of {traffic.prompt_tokens} and outputs of {traffic.output_tokens} "
        "tokens: far from that, factors are extrapolated",
        f"its steps were scheduled as {_SCHEDULER_NAMES[scheduler]} does (--scheduler)",
        "prompts that the server found in its prefix cache make TTFT shorter than predicted",
    ]
    if run.server is None:
        notes.append(
            f"{run.client} recorded no server arguments: that {_SCHEDULER_NAMES[scheduler]} ran this placement is "
            "taken on trust"
        )
    if run.dataset is not None and run.dataset.startswith("random"):
        notes.append(
            f"prompts were {run.dataset}: random tokens choose other experts than the trace's requests, so cold and "
            "hot times may differ for that alone; benchmark with the traffic that was traced"
        )
    if run.rate_per_s is not None and run.arrivals_s is None:
        written = "" if run.arrivals_option is None else f" ({run.arrivals_option})"
        notes.append(f"when requests of {name} arrived is not in the file: {_distances(run)}{written}")
    if run.rate_per_s is None and run.requests < _FEW_REQUESTS * run.clients:
        notes.append(
            f"{name} has {counted(run.requests, 'request')} of {counted(run.clients, 'client')}, "
            f"mostly its start and end: send at least {_FEW_REQUESTS * run.clients}"
        )
    if not run.detailed:
        notes.append(
            "lengths of single requests are not in the file, so all are taken as of mean length "
            f"({run.lengths_option})"
        )
    if not run.failed_known:
        notes.append(
            f"requests of {name} that got no answer are not counted in the file, so none is assumed: compare its "
            f"{run.requests:,} with those that were sent ({run.lengths_option} lists errors)"
        )
    if run.failed:
        notes.append(f"left out: {counted(run.failed, 'request')} of {name} that got no answer")
    return notes


def _sent(run: ServingBenchmark) -> str:
    return (
        counted(run.clients, "client")
        if run.rate_per_s is None
        else f"{run.rate_per_s:g} requests per second"
    )


def _distances(run: ServingBenchmark) -> str:
    """How arrivals that are not known are played."""
    if run.burstiness == 1.0:
        return "drawn at exponential distances"
    if math.isinf(run.burstiness):
        return "taken at even distances"
    return f"drawn at gamma-distributed distances of burstiness {run.burstiness:g}"


def _source(file: BenchmarkFile) -> CalibrationSource:
    return CalibrationSource(
        file.path.name,
        file.sha256,
        " and ".join(dict.fromkeys(run.client for run in file.runs)),
        sum(run.requests for run in file.runs),
    )


def _log_source(log: KtTimingLog) -> CalibrationSource:
    return CalibrationSource(log.path.name, log.sha256, "sglang-kt timing log", len(log.calls))
