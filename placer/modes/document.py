"""The document of `placer compare`: rows, winners and the sizing rule as plain JSON values."""

import math
from typing import Any

from placer.band import Band
from placer.modes.comparison import Comparison
from placer.modes.mode import ModeFigures, ModeRow, falls_behind
from placer.modes.rule_of_thumb import FACTOR, RuleOfThumb
from placer.modes.verdict import MissedTarget, advice, missed_targets, verdict

_FIGURES = ("output_tokens_per_s", "output_tokens_per_s_per_gpu", "requests_per_s", "ttft_ms", "tpot_ms")


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """``comparison`` in the fields of the contract; numbers are finite or null with a reason beside them."""
    request, hardware = comparison.request, comparison.hardware
    workload, best = request.workload, comparison.best
    rows = [_row(comparison, row) for row in comparison.rows]
    null_reasons = {}
    if best is None:
        null_reasons["best"] = verdict(comparison)
    if advice(comparison) is None:
        null_reasons["advice"] = (
            "a way wins" if best is not None else "no single change that was tried would do"
        )
    if hardware.cold_problem is not None:
        null_reasons["hardware.cpu_method"] = hardware.cold_problem[0]
    for gpus in request.gpus:
        if comparison.best_on(gpus) is None:
            null_reasons[f"best_by_gpus.{gpus}"] = _why_none_wins(comparison, gpus)
    for name, target in (("tpot_ms", workload.slo_tpot_ms), ("ttft_ms", workload.slo_ttft_ms)):
        if target is None:
            null_reasons[f"workload.slo.{name}"] = "no target was given"
    if request.host_memory_bytes is None:
        null_reasons["hardware.host_memory_bytes"] = "not known: host ledgers are not held against it"
    if workload.rate_per_s is None:
        null_reasons["workload.rate_per_s"] = "no --rate was given"
    if workload.arrivals_s is None:
        null_reasons["workload.arrivals"] = "no --arrivals were given"
        null_reasons["workload.arrivals_span_s"] = "no --arrivals were given"
    return {
        "model": comparison.model.name,
        "verdict": verdict(comparison),
        "advice": advice(comparison),
        "workload": {
            "prompt_tokens": workload.prompt_tokens,
            "output_tokens": workload.output_tokens,
            "concurrency": workload.concurrency,
            "rate_per_s": workload.rate_per_s,
            "arrivals": None if workload.arrivals_s is None else len(workload.arrivals_s),
            "arrivals_span_s": workload.arrivals_span_s,
            "length_variation": workload.length_variation,
            "prefix_hit": workload.prefix_hit,
            "kv_tokens": request.kv_tokens,
            "kv_dtype": request.kv_dtype,
            "slo": {"tpot_ms": workload.slo_tpot_ms, "ttft_ms": workload.slo_ttft_ms},
        },
        "server": {
            "scheduler": request.scheduler.value,
            "deferred_experts": request.behaviour.deferred_experts,
            "skip_idle_cold": request.behaviour.skip_idle_cold,
        },
        "hardware": {
            "gpu": hardware.gpu.name,
            "budget_bytes_per_gpu": request.budget_bytes,
            "cpu": hardware.profile.cpu.device,
            "cpu_method": hardware.profile.cpu.method if hardware.cold_problem is None else None,
            "host_memory_bytes": request.host_memory_bytes,
        },
        "rows": rows,
        "best": None if best is None else rows[comparison.rows.index(best)],
        "best_by_gpus": {str(gpus): _place(comparison, gpus) for gpus in request.gpus},
        "rule_of_thumb": {name: _rule(rule) for name, rule in comparison.rules.items()},
        "notes": list(comparison.notes),
        "null_reasons": null_reasons,
        "tied": [comparison.rows.index(row) for row in comparison.tied],
        "missed": [_missed(comparison, target) for target in missed_targets(comparison)],
    }


def _missed(comparison: Comparison, missed: MissedTarget) -> dict[str, Any]:
    return {
        "target": missed.field,
        "asked_ms": missed.asked_ms,
        "reached_ms": missed.reached_ms,
        "factor": missed.factor,
        "row": comparison.rows.index(missed.row),
    }


def _place(comparison: Comparison, gpus: int) -> int | None:
    """Index of the winning row on so many GPUs; None where no row keeps the targets."""
    best = comparison.best_on(gpus)
    return None if best is None else comparison.rows.index(best)


def _why_none_wins(comparison: Comparison, gpus: int) -> str:
    here = [row for row in comparison.rows if row.way.parallel.gpus == gpus]
    running = [row for row in here if row.runs]
    if not running:
        fits = any(row.fits for row in here)
        return "nothing that fits on so many GPUs runs" if fits else "nothing fits on so many GPUs"
    if all(map(falls_behind, running)):
        return "every way that runs on so many GPUs falls behind the requests that arrive"
    return "no way that runs on so many GPUs keeps the targets"


def _row(comparison: Comparison, row: ModeRow) -> dict[str, Any]:
    way, settings, figures, obstacle = row.way, row.settings, row.figures, row.obstacle
    null_reasons: dict[str, str] = {}
    if way.cache is None:
        null_reasons["cache"] = "this mode streams nothing"
    if obstacle is None:
        null_reasons["binding_line"] = null_reasons["reason"] = "every line fits"
    else:
        fields = ("hot_experts", "kv_tokens", "max_running_requests", "chunked_prefill_size", *_FIGURES)
        null_reasons |= dict.fromkeys(fields, obstacle.reason)
        null_reasons |= dict.fromkeys(("runs", "runs_reason"), obstacle.reason)
        if row.hbm is None:
            null_reasons |= dict.fromkeys(("hbm.ledger", "max_kv_tokens"), obstacle.reason)
        if row.host is None:
            null_reasons |= dict.fromkeys(("host.ledger", "host.total_bytes"), obstacle.reason)
    if row.runs:
        null_reasons["runs_reason"] = "a runtime runs it"
    if row.unstreamed is None:
        streams = "experts are streamed" if row.fits else "it does not fit"
        null_reasons["unstreamed_reason"] = "this mode streams nothing" if way.cache is None else streams
    served = _served(figures, way.parallel.gpus, null_reasons)
    return {
        "mode": way.mode.value,
        "cache": None if way.cache is None else way.cache.value,
        "gpus": way.parallel.gpus,
        "parallelism": way.spread,
        "fits": row.fits,
        "binding_line": None if obstacle is None else obstacle.line,
        "reason": None if obstacle is None else obstacle.reason,
        "remedies": [] if obstacle is None else list(obstacle.cures),
        "meets_targets": comparison.keeps_targets(row),
        "hot_experts": None if settings is None else row.hot_experts,
        "kv_tokens": None if settings is None else settings.kv_tokens,
        "max_kv_tokens": None if row.hbm is None else row.most_kv_tokens,
        "max_running_requests": None if settings is None else settings.max_running_requests,
        "chunked_prefill_size": None if settings is None else settings.chunk_tokens,
        **served,
        "hbm": {
            "budget_bytes_per_gpu": comparison.request.budget_bytes,
            "ledger": None if row.hbm is None else row.hbm.lines,
        },
        "host": {
            "ledger": None if row.host is None else dict(row.host),
            "total_bytes": None if row.host is None else sum(row.host.values()),
        },
        "provenance": dict(row.provenance),
        "null_reasons": null_reasons,
        "runs": row.runs if row.fits else None,
        "runs_reason": row.stopper if row.fits else None,
        "unstreamed_reason": row.unstreamed,
        "meets_targets_when_slow": comparison.keeps_targets_slow(row),
    }


def _served(figures: ModeFigures | None, gpus: int, null_reasons: dict[str, str]) -> dict[str, Any]:
    """What clients see, null where nothing fits or where a wait never ends."""
    latencies = ("p50", "p95", "p95_low", "p95_high")
    if figures is None:
        return {
            "output_tokens_per_s": dict.fromkeys(("low", "mid", "high")),
            "output_tokens_per_s_per_gpu": None,
            "requests_per_s": None,
            "ttft_ms": dict.fromkeys(latencies),
            "tpot_ms": dict.fromkeys(latencies),
        }
    rate, mid, bands = figures.bands.output_tokens_per_s, figures.mid, figures.bands

    def spread(field: str, p50: Band, p95: Band) -> dict[str, float | None]:
        values = dict(zip(latencies, (p50.mid, p95.mid, p95.low, p95.high), strict=True))
        endless = [label for label, value in values.items() if not math.isfinite(value)]
        for label in endless:
            null_reasons[f"{field}.{label}"] = "requests arrive faster than they are served: the wait grows"
        return {label: None if label in endless else value for label, value in values.items()}

    return {
        "output_tokens_per_s": {"low": rate.low, "mid": rate.mid, "high": rate.high},
        "output_tokens_per_s_per_gpu": rate.mid / gpus,
        "requests_per_s": mid.requests_per_s,
        "ttft_ms": spread("ttft_ms", bands.ttft_ms_p50, bands.ttft_ms_p95),
        "tpot_ms": spread("tpot_ms", bands.tpot_ms_p50, bands.tpot_ms_p95),
    }


def _rule(rule: RuleOfThumb) -> dict[str, Any]:
    exact = rule.exact
    document: dict[str, Any] = {
        "parameters": rule.parameters,
        "bytes_per_parameter": rule.parameter_bytes,
        "factor": FACTOR,
        "rule_bytes": rule.rule_bytes,
        "rule_gpus": rule.rule_gpus,
        "exact_bytes": exact.total_bytes,
        "exact_weights_bytes": exact.weights_bytes,
        "exact_gpus": exact.gpus,
        "exact_parallelism": exact.spread,
        "null_reasons": {},
    }
    if exact.gpus is None:
        why = "gpu-only serving fits on no number of GPUs that divides the model, up to 64"
        document["null_reasons"] = dict.fromkeys(
            ("exact_bytes", "exact_weights_bytes", "exact_gpus", "exact_parallelism"), why
        )
    return document
