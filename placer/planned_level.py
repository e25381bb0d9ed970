"""What a placement was planned at, read back: its level of server settings, and its traffic."""

from placer.hbm import HbmLedger, ServerSettings
from placer.level import Level
from placer.placement import PlacementDocument
from placer.replays import PROMPTS_LEFT_OUT
from placer.runtime_behaviour import DEFAULT_BEHAVIOUR, RuntimeBehaviour
from placer.workload import Workload


def planned_level(placement: PlacementDocument) -> Level:
    """The placement's settings, with room for as many hot experts as it holds."""
    kv, lines = placement.kv, dict(placement.hbm.ledger)
    lines["unused"] = lines.get("unused", 0) + lines.pop("hot_experts", 0)
    settings = ServerSettings(kv.max_running_requests, kv.tokens, kv.chunked_prefill_size, kv.dtype)
    return Level(settings, HbmLedger(placement.hbm.budget_bytes_per_gpu, lines), placement.hot_total)


def planned_workload(placement: PlacementDocument) -> Workload:
    """The placement's traffic as clients that follow each other, without its latency targets."""
    planned = placement.workload
    return Workload(
        planned.prompt_tokens, planned.output_tokens, planned.concurrency, prefix_hit=planned.prefix_hit
    )


def planned_behaviour(placement: PlacementDocument) -> RuntimeBehaviour:
    """What the runtime was planned to do beyond its defaults."""
    planned = placement.runtime
    if planned is None:
        return DEFAULT_BEHAVIOUR
    return RuntimeBehaviour(planned.deferred_experts, planned.skip_idle_cold)


def planned_prefill_from(placement: PlacementDocument) -> str:
    """Where prompts come from when the plan is scored again: nowhere if it was solved without them."""
    return "none" if PROMPTS_LEFT_OUT in placement.notes else "decode"
