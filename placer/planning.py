"""From a solve to the placement document: every figure with its origin."""

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from placer import __version__
from placer.choosing import simulated
from placer.doubt import slow_end_doubts
from placer.dynamic_document import planned_dynamic
from placer.errors import BadInputError
from placer.hbm import REPACKING_NOTE, ServerSettings, context_tokens, repacks
from placer.host import HostLedger, HostRoom
from placer.memory_sections import memory_sections
from placer.model.spec import ModelSpec
from placer.objective import UNITS, Objective
from placer.parallelism import Parallelism
from placer.placement import FORCED, PlacementDocument
from placer.predicted_figures import behaviour_notes, figures, plan_figures, prediction_origin, ttft_reason
from placer.profiler.datasheet_cpu import DatasheetCpu
from placer.profiler.profile import Profile
from placer.profiler.profile_use import AS_PROFILED, ProfileUse, check_profile_error, check_profile_matches
from placer.profiler.trace.importing import check_trace_of
from placer.profiler.trace.trace import Trace
from placer.sampling_document import heldout_sampling, robust_section
from placer.solve_request import SolveRequest
from placer.solved import Solved
from placer.solving import solve
from placer.units import gib
from placer.untraced import solve_untraced
from placer.verdict import placement_verdict
from placer.what_if import SOLVE_SHARE, part
from placer.what_if_document import with_what_ifs
from placer.workload import Workload

SCHEMA = "placer.placement/1"
SPECULATIVE_NOTE = (
    "room is kept for the MTP layer with all its experts and its cache, and the export starts the server "
    "drafting with it; predicted times are without drafting"
)
HOST_MEMORY_NOTE = "the server's host memory is not known, so it was not checked (give --host-memory SIZE)"
DOUBTFUL_MAPE = 0.10
"""Held-out error of the cold side above which a plan says that its times are doubtful."""
ROOMY = 2
"""A pool that holds a request so many times as long as the mean one is not said to cut requests."""


def plan(
    model: ModelSpec,
    trace: Trace | None,
    profile: Profile,
    request: SolveRequest,
    *,
    host_memory_bytes: int | None = None,
    use: ProfileUse = AS_PROFILED,
    what_if: bool = False,
    progress: Callable[[str, float], None] = lambda _text, _share: None,
) -> PlacementDocument:
    """Solve and state the answer as a placement document (`placer solve`).

    ``trace`` None plans under uniform routing. ``host_memory_bytes`` replaces the profiled machine's RAM.
    ``what_if`` solves changes of the server too.

    Raises
    ------
    BadInputError
        When trace or profile belong to another model, the profile's held-out error is too large to plan with, or
        the budget exceeds the profiled GPU.
    InfeasibleError
        When nothing fits the HBM budget or host memory, or no level meets the latency targets.
    """
    forced = (
        *check_profile_matches(profile, model, tp=request.tp, use=use),
        *check_profile_error(profile, force=use.force),
    )
    if request.behaviour.deferred_experts > model.top_k:
        raise BadInputError(
            f"--deferred-experts is {request.behaviour.deferred_experts}",
            f"a token of {model.name} chooses {model.top_k} experts: give 0 to {model.top_k}",
        )
    memory = profile.host_memory_bytes if host_memory_bytes is None else host_memory_bytes
    room = HostRoom(profile.cpu.method, profile.cpu.numa_nodes, memory)
    request = replace(request, host=room)
    if trace is None:
        for flag, given in (
            ("--pin", request.pins),
            ("--frontier", request.frontier),
            ("--write-lp", request.lp_path),
            ("--mix", request.mix),
            ("--robust", request.robust),
            ("--what-if", what_if),
        ):
            if given:
                raise BadInputError(
                    f"{flag} needs a trace: with --trace none every layer gets the same number of hot experts",
                    f"give a trace, or leave {flag} out",
                )
        solved = solve_untraced(model, profile.cost_model(), request, progress)
    else:
        check_trace_of(trace, model)
        solving = part(progress, 0.0, SOLVE_SHARE if what_if else 1.0)
        solved = solve(model, trace, profile.cost_model(), request, solving)
    host = room.ledger(model, solved.level.settings.chunk_tokens)
    unchecked = memory is None
    document = placement_document(
        model, trace, profile, request, solved, host, forced=forced, host_unchecked=unchecked
    )
    if trace is None or not what_if:
        return document
    return with_what_ifs(document, model, trace, profile, request, solved, part(progress, SOLVE_SHARE, 1.0))


def placement_document(
    model: ModelSpec,
    trace: Trace | None,
    profile: Profile,
    request: SolveRequest,
    solved: Solved,
    host: HostLedger,
    *,
    forced: tuple[str, ...] = (),
    host_unchecked: bool = False,
) -> PlacementDocument:
    """The document of DESIGN's contract ``placer.placement/1`` for a solve.

    ``forced`` says what does not match between profile and plan, ``host_unchecked`` that the server's RAM is unknown.
    """
    tp, settings, workload = request.tp, solved.level.settings, request.workload
    hot_total = int(solved.hot.sum())
    null_reasons = profile.hardware_null_reasons()
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "placer_version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": {
            "name": model.name,
            "architecture": model.architecture,
            "config_sha256": model.config_sha256,
            "layers": list(model.moe_layers),
            "experts": model.experts,
            "top_k": model.top_k,
            "hidden_size": model.hidden_size,
            "config": model.config,
        },
        "hardware": profile.hardware(),
        "workload": {
            "prompt_tokens": workload.prompt_tokens,
            "output_tokens": workload.output_tokens,
            "concurrency": workload.concurrency,
            "slo": {"tpot_ms": workload.slo_tpot_ms, "ttft_ms": workload.slo_ttft_ms},
            **_traffic(workload),
        },
        "runtime": {"scheduler": request.scheduler.value, **asdict(request.behaviour)},
        "tp": tp,
        **memory_sections(
            model,
            settings=settings,
            tp=tp,
            hot_experts=hot_total,
            budget_bytes=request.budget_bytes,
            device_bytes=profile.gpu.usable_bytes,
            host=host,
            loss_bytes=request.loss_bytes,
        ),
        "cpu_method": profile.cpu.method,
        "hot": {
            str(layer): _hottest_first(solved.hot[row], solved.priority[row])
            for row, layer in enumerate(model.moe_layers)
        },
        "hot_total": hot_total,
        "predicted": {
            **figures(solved.prediction, "predicted", null_reasons),
            **plan_figures(solved.prediction, workload, profile.uncertainty, null_reasons),
            "provenance": prediction_origin(
                trace, profile, request, extrapolated_share=solved.extrapolated_share
            ),
        },
        "baselines": {
            name: figures(found, f"baselines.{name}", null_reasons)
            for name, found in solved.baselines.items()
        },
        "heldout": {
            "coverage": solved.coverage,
            "uniform_null": solved.uniform_null,
            "verdict": placement_verdict(solved),
            "chosen": solved.chosen,
            **heldout_sampling(solved, null_reasons),
        },
        "solver": {
            "name": solved.solver,
            "status": solved.status,
            "objective_us": solved.objective_us,
            "bound_us": solved.bound_us,
            "gap": solved.gap,
            "seconds": round(solved.seconds, 3),
            "objective_name": solved.objective.value,
            "objective_reached": abs(simulated(solved.objective, solved.prediction)),
            "objective_unit": UNITS[solved.objective],
            "levels": {
                "solved": solved.levels_solved,
                "total": solved.levels_total,
                "missed_targets": solved.levels_missed,
            },
        },
        "kt": {"threads": profile.cpu.threads, "subpools": profile.cpu.numa_nodes},
        "profile_sha256": profile.sha256,
        "trace": None if trace is None else {"source": trace.header.source, "tokens": trace.tokens},
        "sensitivity": _sensitivity(model, solved, null_reasons),
        "whole_layers": {
            **{
                name: [_rounded(each) for each in means]
                for name, means in asdict(solved.whole_layers).items()
            },
            "checkpoint_format": model.expert_format["checkpoint"],
            "checkpoint_expert_bytes": model.checkpoint_expert_bytes,
        },
        "dynamic": planned_dynamic(model, trace, profile, request, solved, null_reasons),
        "notes": [
            *(f"{FORCED}{each}" for each in forced),
            *_fit_warnings(profile),
            *((HOST_MEMORY_NOTE,) if host_unchecked else ()),
            *_host_notes(request.host, solved, host),
            *behaviour_notes(request.behaviour, workload, trace),
            *solved.notes,
            *slow_end_doubts(
                solved.prediction, workload, each_target=solved.objective is not Objective.GOODPUT
            ),
            *_memory_notes(model, settings),
            *_length_notes(model, settings, tp, workload),
        ],
    }
    for path, value in (
        ("workload.slo.tpot_ms", workload.slo_tpot_ms),
        ("workload.slo.ttft_ms", workload.slo_ttft_ms),
    ):
        if value is None:
            null_reasons[path] = "no target was given"
    if request.pins:
        document["pinned"] = {
            str(layer): "all" if all_hot else "none" for layer, all_hot in request.pins.items()
        }
    if request.mix:
        document["mix"] = dict(request.mix)
    if solved.robust is not None:
        document["robust"] = robust_section(solved.robust)
    if request.least_hot or request.most_hot is not None:
        most = model.experts if request.most_hot is None else request.most_hot
        document["hot_per_layer"] = {"min": request.least_hot, "max": most}
    if solved.frontier:
        document["frontier"] = _frontier(solved, null_reasons)
    if trace is None:
        null_reasons["trace"] = "planned before any trace exists"
        null_reasons["heldout.coverage"] = "no trace to hold out requests from"
        for field in ("bound_us", "gap"):
            null_reasons[f"solver.{field}"] = (
                "uniform routing leaves nothing to optimise but the count per layer"
            )
    document["null_reasons"] = null_reasons
    return PlacementDocument.model_validate(document)


def _traffic(workload: Workload) -> dict[str, Any]:
    """What is stated of the traffic where it is not equal requests of clients that follow each other."""
    plain: dict[str, Any] = {}
    if workload.rate_per_s is not None:
        plain["rate_per_s"] = workload.rate_per_s
    if workload.arrivals_s is not None:
        span_s = workload.arrivals_s[-1] - workload.arrivals_s[0]
        plain["arrivals"] = {"requests": len(workload.arrivals_s), "span_s": span_s}
    if workload.length_variation:
        plain["length_variation"] = workload.length_variation
    if workload.prefix_hit:
        plain["prefix_hit"] = workload.prefix_hit
    return plain


def _frontier(solved: Solved, null_reasons: dict[str, str]) -> list[dict[str, Any]]:
    """The frontier's points as plain JSON values, in order of running requests."""
    points = []
    for number, point in enumerate(solved.frontier):
        if point.prediction.ttft_ms_p95 is None:
            null_reasons[f"frontier.{number}.ttft_ms_p95"] = ttft_reason(point.prediction)
        points.append(
            {
                "max_running_requests": point.settings.max_running_requests,
                "kv_tokens": point.settings.kv_tokens,
                "kv_dtype": point.settings.kv_dtype,
                "chunked_prefill_size": point.settings.chunk_tokens,
                "hot_experts": point.hot_experts,
                "output_tokens_per_s": point.prediction.output_tokens_per_s,
                "tpot_ms_p95": point.prediction.tpot_ms_p95,
                "ttft_ms_p95": point.prediction.ttft_ms_p95,
                "objective_us": point.objective_us,
                "bound_us": point.bound_us,
                "chosen": point.settings == solved.level.settings,
            }
        )
    return points


def _sensitivity(model: ModelSpec, solved: Solved, null_reasons: dict[str, str]) -> dict[str, Any] | None:
    """What every expert's place and a GiB more are worth, rounded to four digits."""
    found = solved.sensitivity
    if found is None:
        null_reasons["sensitivity"] = "no trace was given, so experts cannot be told apart"
        return None
    price_us = found.price_us_per_gib
    gained = None
    if price_us is None or solved.objective_us is None:
        for name in ("price_us_per_gib", "tokens_per_s_per_gib"):
            null_reasons[f"sensitivity.{name}"] = f"{solved.solver} states no multiplier of the budget"
    else:
        gained = _rounded(solved.prediction.output_tokens_per_s * price_us / solved.objective_us)
    return {
        "expert_bytes_per_gpu": found.expert_bytes,
        "price_us_per_gib": None if price_us is None else _rounded(price_us),
        "tokens_per_s_per_gib": gained,
        "value_us": {
            str(layer): [_rounded(value) for value in row.tolist()]
            for layer, row in zip(model.moe_layers, found.value_us, strict=True)
        },
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _memory_notes(model: ModelSpec, settings: ServerSettings) -> list[str]:
    return [
        *((REPACKING_NOTE,) if repacks(model) else ()),
        *((SPECULATIVE_NOTE,) if settings.speculative else ()),
    ]


def _host_notes(room: HostRoom | None, solved: Solved, host: HostLedger) -> list[str]:
    """That the server starts without CPU experts only, where its memory does not hold them."""
    if room is None or room.memory_bytes is None or room.memory_bytes >= host.total_bytes:
        return []
    if not solved.hot.all():
        return []
    return [
        f"warning: host memory of {gib(room.memory_bytes)} does not hold kt-kernel's experts "
        f"({gib(host.total_bytes)}): every expert is on the GPU, so start the server without CPU experts"
    ]


def _length_notes(model: ModelSpec, settings: ServerSettings, tp: int, workload: Workload) -> list[str]:
    """What the pool cuts of requests whose lengths were given as means alone."""
    longest = context_tokens(model, settings, Parallelism(tp))
    varying = bool(workload.length_variation) or workload.request_lengths is not None
    if varying or longest >= min(model.max_context_tokens, ROOMY * workload.request_tokens):
        return []
    return [
        f"the server will refuse requests of more than {longest:,} tokens, prompt and output together: its KV pool "
        f"holds no longer one. Requests of {workload.request_tokens:,} tokens were planned for; where some are longer, "
        "solve with --length-variation or --min-kv-tokens"
    ]


def _fit_warnings(profile: Profile) -> list[str]:
    """What makes the profile's figures doubtful, one sentence each."""
    warnings = []
    if (merged := profile.merged) is not None:
        warnings.append(
            "the profile was merged from two: the CPU's side was "
            f"{merged.cpu.words(by_datasheet=profile.cpu_by_datasheet)}, the GPU's was "
            f"{merged.gpu.words(by_datasheet=profile.gpu_by_datasheet)}"
        )
    cpu = profile.cpu
    if isinstance(cpu, DatasheetCpu):
        return [
            *warnings,
            f"warning: the CPU's side is a datasheet roofline: true cold times may be {cpu.band[0]:g} to "
            f"{cpu.band[1]:g} times the predicted; profile on the server before you rely on them",
            *(() if profile.calibration is None else profile.calibration.warnings),
        ]
    mape = cpu.report.overall.mape
    if mape > DOUBTFUL_MAPE:
        warnings.append(
            f"warning: the CPU cost model is off by {mape:.0%} on held-out calls, so every predicted time is doubtful: "
            "profile again on an idle machine"
        )
    if profile.calibration is not None:
        warnings += profile.calibration.warnings
    if cpu.quiet_warning and mape > DOUBTFUL_MAPE / 2:
        warnings.append(f"warning: while profiling, {cpu.quiet_warning}")
    return warnings


def _hottest_first(hot: np.ndarray[Any, Any], priority: np.ndarray[Any, Any]) -> list[int]:
    """Hot expert ids by falling priority, ids breaking ties: int list from bool [E] and float [E]."""
    order = np.lexsort((np.arange(hot.size), -priority))
    return [int(expert) for expert in order if hot[expert]]
