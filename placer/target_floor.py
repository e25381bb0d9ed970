"""Latency targets below what a step takes outside the experts: no placement, memory or setting can keep them."""

from placer.hbm import ServerSettings
from placer.level_cost import base_costs
from placer.model.spec import ModelSpec
from placer.profiler.cost import CostModel
from placer.profiler.steps import StepKind
from placer.solve_request import SolveRequest
from placer.units import duration


def below_floor(model: ModelSpec, cost: CostModel, request: SolveRequest) -> str | None:
    """Which targets lie below what the profiled machine takes outside the experts; None where none does.

    Every output token waits for a decode step of one request without context at least, every prompt for a step that
    computes it: of varying lengths, a prompt of one token.
    """
    workload = request.workload
    varied = workload.length_variation > 0 or workload.request_lengths is not None
    prompt = 1 if varied else workload.computed_prompt_tokens
    known = request.prefill_from != "none"
    floors = (
        ("--slo-tpot", workload.slo_tpot_ms, StepKind.DECODE, 1, "a decode step of one request"),
        (
            "--slo-ttft",
            workload.slo_ttft_ms if known else None,
            StepKind.PREFILL,
            prompt,
            "one prompt token" if varied else "a prompt's own step",
        ),
    )
    said = []
    for flag, target_ms, kind, tokens, what in floors:
        if target_ms is None:
            continue
        least_us = min(_outside_us(model, cost, request, kind, tokens, dtype) for dtype in ("bf16", "fp8"))
        if least_us > target_ms * 1e3:
            said.append(f"{flag} of {target_ms:g} ms ({what} takes {duration(least_us)} without any expert)")
    return " and ".join(said) or None


def _outside_us(
    model: ModelSpec, cost: CostModel, request: SolveRequest, kind: StepKind, tokens: int, kv_dtype: str
) -> float:
    """Time of a step outside the experts, the KV of decoding requests apart."""
    workload = request.workload
    settings = ServerSettings(1, workload.request_tokens, tokens, kv_dtype)
    base_us, kv_token_us = base_costs(model, cost, kind, tokens, settings, workload, request.tp)
    held = workload.mean_context_tokens if kind is StepKind.DECODE else 0
    return base_us - held * kv_token_us
