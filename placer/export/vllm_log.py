"""What a vLLM server with placer's plugin logged, held against the plan that it was given."""

from pathlib import Path

from placer.errors import BadInputError
from placer.export.applied import Applied, Comparison
from placer.export.vllm_plugin import RUNTIME
from placer.input import checked_input
from placer.runtime.load import PlacementError, load
from placer.runtime.vllm.applied import AppliedLayer, hot_digest, read_applied

_CURE = "start the server with the launch.sh of the export, and keep its whole log"
_REPORT = "report this: the server should not have started"


def check_vllm_log(placement_path: Path, log_path: Path) -> Applied:
    """The log at ``log_path`` against the placement at ``placement_path``: whether it was applied, and layer by layer.

    Raises
    ------
    BadInputError
        When a file cannot be read.
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
    found = (
        None if applied is None else f"sha256 {applied.plan_sha256[:12]}, cold experts by {applied.cold_path}"
    )
    rows = [
        Comparison(
            "placement applied",
            f"sha256 {plan.sha256[:12]}",
            found,
            applied is not None and applied.plan_sha256 == plan.sha256,
            _CURE if applied is not None else f"all experts may be on the GPU: {_CURE}",
        )
    ]
    logged = {each.layer: each for each in layers}
    for layer, ids in plan.hot.items():
        planned = f"{len(ids)} of {plan.experts} experts hot"
        each = logged.get(layer)
        rows.append(
            Comparison(f"layer {layer}", planned, None, False, _CURE)
            if each is None
            else Comparison(
                f"layer {layer}",
                planned,
                f"{each.hot} of {each.experts} experts hot" + _others(each, ids),
                (each.experts, each.hot, each.hot_sha256) == (plan.experts, len(ids), hot_digest(ids)),
                _REPORT,
            )
        )
    return Applied(RUNTIME, str(log_path), tuple(rows))


def _others(each: AppliedLayer, ids: tuple[int, ...]) -> str:
    same_count = each.hot == len(ids)
    return ", other ones" if same_count and each.hot_sha256 != hot_digest(ids) else ""
