"""What a vLLM server with placer's plugin logged, compared with the plan that it was given."""

from pathlib import Path

from placer.errors import BadInputError
from placer.input import checked_input
from placer.runtime.load import PlacementError, load
from placer.runtime.vllm.applied import AppliedPlan, hot_digest, read_applied

_CURE = "start the server with the launch.sh of the export, and keep its whole log"


def check_vllm_log(placement_path: Path, log_path: Path) -> AppliedPlan:
    """The line of the applied plan in the log at ``log_path``, which must be of the plan at ``placement_path``.

    Raises
    ------
    BadInputError
        When a file cannot be read, or the server did not hold exactly the plan's experts: names the first layer.
    """
    log = checked_input(log_path, what="server log", cure="give the log of the server", regular=False)
    try:
        plan = load(placement_path)
        layers, applied = read_applied(log.read_text(encoding="utf-8", errors="replace"))
    except PlacementError as error:
        raise BadInputError(str(error)) from None
    except OSError as error:
        raise BadInputError(
            f"cannot read server log {log}: {error.strerror or error}", "check the path"
        ) from None
    if applied is None:
        raise BadInputError(
            f"{log} does not say that a placement was applied: all experts may be on the GPU", _CURE
        )
    if applied.plan_sha256 != plan.sha256:
        raise BadInputError(
            f"{log} is of a server with another placement (sha256 {applied.plan_sha256[:12]}...)", _CURE
        )
    logged = {each.layer: each for each in layers}
    for layer, ids in plan.hot.items():
        each = logged.get(layer)
        if each is None:
            raise BadInputError(f"{log} says nothing of layer {layer}", _CURE)
        if (each.experts, each.hot, each.hot_sha256) != (plan.experts, len(ids), hot_digest(ids)):
            raise BadInputError(
                f"{log}: layer {layer} holds {each.hot} of {each.experts} experts, and the plan {len(ids)} of "
                f"{plan.experts}, or other ones",
                "report this: the server should not have started",
            )
    return applied
