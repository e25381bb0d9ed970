"""Predictions as placement.json states them, every part with its origin."""

import math
from dataclasses import asdict
from typing import Any

from placer.band import Band
from placer.prediction import Prediction
from placer.profiler.deferred import UNWEIGHTED
from placer.profiler.factor import FactorName
from placer.profiler.profile import Profile
from placer.profiler.serving.served import Spread
from placer.profiler.serving.server import Scheduler
from placer.profiler.trace.trace import TokenTrace, Trace
from placer.profiler.uncertainty import Uncertainty
from placer.runtime_behaviour import RuntimeBehaviour
from placer.solve_request import SolveRequest
from placer.units import counted
from placer.workload import Workload

NOT_REPLAYED = "prefill was not replayed"
FALLS_BEHIND = (
    "requests arrive faster than the server finishes them, or nearly so: waiting grows for as long as they arrive and "
    "has no steady value"
)
_SCHEDULERS = {
    Scheduler.SGLANG: "SGLang's scheduler (prompts first)",
    Scheduler.VLLM: "vLLM's scheduler (prompts beside decoding)",
}


def figures(found: Prediction, path: str, null_reasons: dict[str, str]) -> dict[str, Any]:
    """The figures of ``found`` as plain JSON values; nulls get a reason under ``path``."""
    serving = found.serving
    plain: dict[str, Any] = {
        "decode_step_ms": found.decode_step_ms,
        "tpot_ms": {"mean": found.tpot_ms_mean, "p95": found.tpot_ms_p95},
        "ttft_ms": {"mean": found.ttft_ms_mean, "p95": found.ttft_ms_p95},
        "output_tokens_per_s": found.output_tokens_per_s,
        "cold_share": found.cold_share,
        "per_layer_ms": list(found.per_layer_ms),
        "moe_step_us": found.moe_step_us,
    }
    if serving is not None:
        behind = serving.falls_behind and found.ttft_ms_p95 is None
        plain["tpot_ms"] = asdict(serving.tpot_ms)
        plain["queue_ms"] = _waiting(serving.queue_ms, behind)
        plain["ttft_ms"] = _waiting(serving.ttft_ms, found.ttft_ms_p95 is None)
        plain["requests_per_s"] = serving.requests_per_s
        plain["kv_tokens"] = {"mean": serving.kv_mean_tokens, "peak": serving.kv_peak_tokens}
        plain["retractions_per_request"] = serving.retractions
        if behind:
            null_reasons[f"{path}.queue_ms"] = FALLS_BEHIND
    if found.goodput_tokens_per_s is not None:
        plain["goodput_tokens_per_s"] = found.goodput_tokens_per_s
    if found.ttft_ms_p95 is None:
        null_reasons[f"{path}.ttft_ms"] = ttft_reason(found)
    return plain


def ttft_reason(found: Prediction) -> str:
    """Why ``found`` states no TTFT."""
    behind = found.serving is not None and found.serving.falls_behind
    return FALLS_BEHIND if behind else NOT_REPLAYED


def plan_figures(
    found: Prediction, workload: Workload, uncertainty: Uncertainty, null_reasons: dict[str, str]
) -> dict[str, Any]:
    """What is stated of the plan beyond its `figures`: whether it keeps up, the split of a step, bands."""
    plain: dict[str, Any] = {}
    if found.serving is not None and found.serving.capacity_per_s is not None:
        plain["open_loop"] = {
            "arrivals_per_s": workload.arrival_rate_per_s,
            "capacity_per_s": found.serving.capacity_per_s,
            "falls_behind": found.serving.falls_behind,
        }
        if workload.arrival_rate_per_s is None:
            null_reasons["predicted.open_loop.arrivals_per_s"] = "all requests arrive at one moment"
    if found.split is not None:
        plain["time_split"] = {
            name.removesuffix("_ms"): list(each) if isinstance(each, tuple) else each
            for name, each in asdict(found.split).items()
        }
    if found.bands is not None:
        plain["band"] = {**_bands(found, null_reasons), "rests_on": uncertainty.reasons}
    return plain


def _bands(found: Prediction, null_reasons: dict[str, str]) -> dict[str, Any]:
    bands = found.bands
    assert bands is not None

    def band(figure: Band, path: str, *, known: bool = True) -> dict[str, float | None]:
        values = {
            name: value if known and math.isfinite(value) else None
            for name, value in figure._asdict().items()
        }
        for name, value in values.items():
            if value is None:
                null_reasons[f"predicted.band.{path}.{name}"] = FALLS_BEHIND if known else NOT_REPLAYED
        return values

    prompts = found.ttft_ms_p95 is not None or (found.serving is not None and found.serving.falls_behind)
    return {
        "output_tokens_per_s": band(bands.output_tokens_per_s, "output_tokens_per_s"),
        "tpot_ms": {
            "p50": band(bands.tpot_ms_p50, "tpot_ms.p50"),
            "p95": band(bands.tpot_ms_p95, "tpot_ms.p95"),
        },
        "ttft_ms": {
            "p50": band(bands.ttft_ms_p50, "ttft_ms.p50", known=prompts),
            "p95": band(bands.ttft_ms_p95, "ttft_ms.p95", known=prompts),
        },
    }


def _waiting(found: Spread, unknown: bool) -> dict[str, float | None]:
    return {name: None if unknown else value for name, value in asdict(found).items()}


def prediction_origin(
    trace: Trace | None, profile: Profile, request: SolveRequest, *, extrapolated_share: float
) -> dict[str, str]:
    """Where each part of a prediction comes from."""
    extrapolated = (
        f"; extrapolated beyond the measured rows per expert in {extrapolated_share:.0%} of decode steps"
        if extrapolated_share
        else ""
    )
    found = profile.calibration
    cold, hot, base = (
        "" if found is None else found.origin(*names)
        for names in (
            (FactorName.COLD,),
            (FactorName.HOT,),
            (FactorName.BASE, FactorName.TRANSFER, FactorName.STEP),
        )
    )
    simulated = f"{_SCHEDULERS[request.scheduler]} simulated over the predicted steps: "
    return {
        "cold": f"{profile.cpu.provenance_text}{extrapolated}{cold}",
        "hot": profile.gpu.provenance_text + hot,
        "base": profile.gpu.base_provenance_text + base,
        "routing": "uniform routing assumed" if trace is None else f"replayed from {trace.header.source}",
        "latencies": simulated + _traffic(request.workload),
        **({} if found is None else {"calibration": found.sentence}),
    }


def _traffic(workload: Workload) -> str:
    if workload.arrivals_s is not None:
        said = f"{len(workload.arrivals_s):,} requests at given times"
    elif workload.rate_per_s is not None:
        said = f"Poisson arrivals, {workload.rate_per_s:g} requests per second"
    else:
        clients = workload.concurrency
        said = f"closed loop of {counted(clients, 'client')}"
    if workload.request_lengths is not None:
        said += ", lengths as given"
    elif workload.length_variation:
        said += f", lengths log-normal (they vary by {workload.length_variation:.0%})"
    if workload.prefix_hit:
        said += f"; {workload.prefix_hit:.0%} of each prompt is found in the prefix cache (assumed)"
    return said


def behaviour_notes(behaviour: RuntimeBehaviour, workload: Workload, trace: Trace | None) -> tuple[str, ...]:
    """What options of the runtime assume, or change beyond time: one sentence each."""
    notes = []
    if behaviour.deferred_experts:
        notes.append(
            f"warning: --deferred-experts {behaviour.deferred_experts} changes what the model computes: the "
            "weakest selections reach the hidden states a layer late; predicted figures hold it, the choice of hot "
            "experts and its bound do not"
        )
        if isinstance(trace, TokenTrace) and trace.topk_weights is None:
            notes.append(UNWEIGHTED)
    if behaviour.skip_idle_cold:
        notes.append(
            "--skip-idle-cold: sglang-kt 0.7.2 calls the CPU in every layer; figures hold for a runtime that does "
            "not where no cold expert has rows"
        )
    if workload.prefix_hit:
        notes.append(
            "prompt tokens in the prefix cache are not computed, but each request is charged KV of its own for them, "
            "as if nobody shared it; a retracted request computes its whole prompt again"
        )
    return tuple(notes)
