"""Whether a runtime schedules requests by the rules that a plan's latencies were predicted under."""

from placer.placement import PlacementDocument
from placer.profiler.serving.server import Scheduler

_SCHEDULERS = {"sglang-kt": Scheduler.SGLANG, "vllm": Scheduler.VLLM, "vllm-plugin": Scheduler.VLLM}
"""The scheduler of each runtime that has one of those which are simulated."""
_NAMES: dict[str, str] = {Scheduler.SGLANG: "SGLang", Scheduler.VLLM: "vLLM"}


def scheduler_note(placement: PlacementDocument, runtime: str) -> str | None:
    """What to know where ``runtime``, a name of ``--runtime``, has another scheduler than was predicted.

    None where it has that one, and where the plan does not say which it was.
    """
    planned = None if placement.runtime is None else placement.runtime.scheduler
    own = _SCHEDULERS.get(runtime)
    if planned is None or planned == own:
        return None
    predicted = (
        f"the plan's tokens/s, TPOT and TTFT are predicted for {_NAMES.get(planned, planned)}'s scheduler"
    )
    if own is None:
        return f"{predicted}, and {runtime} has one of its own: measure it"
    return (
        f"{predicted}, and {runtime} runs {_NAMES[own]}'s: solve with --scheduler {own.value} for its times"
    )
