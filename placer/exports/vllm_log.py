"""What a vLLM server with placer's plugin logged, held against the plan that it was given."""

from pathlib import Path

from placer.errors import BadInputError
from placer.exports.applied import Applied, Comparison
from placer.exports.kt_server_log import COLOUR
from placer.exports.vllm_plugin import RUNTIME
from placer.input import checked_input
from placer.runtime.load import PlacementError, load
from placer.runtime.vllm.applied import AppliedLayer, hot_digest, read_applied, read_kv_tokens

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
        text = COLOUR.sub("", log.read_text(encoding="utf-8", errors="replace"))
    except PlacementError as error:
        raise BadInputError(str(error)) from None
    except OSError as error:
        raise BadInputError(
            f"cannot read server log {log}: {error.strerror or error}", "check the path"
        ) from None
    if "server_args=ServerArgs(" in text:
        raise BadInputError(f"{log} is a log of SGLang, not of vLLM", "leave --runtime vllm-plugin out")
    if "vllm" not in text.lower() and "placer-placement" not in text:
        raise BadInputError(f"{log} holds no line of a vLLM server", _CURE)
    layers, applied = read_applied(text)
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
    rows.append(_kv_tokens(plan.kv.tokens, read_kv_tokens(text)))
    return Applied(RUNTIME, str(log_path), tuple(rows))


def _kv_tokens(planned: int, found: int | None) -> Comparison:
    """vLLM rounds the pool up to whole blocks, so a few tokens more are as planned."""
    if found is None:
        return Comparison("KV tokens", f"{planned:,}", None, None, "no line 'GPU KV cache size: N tokens'")
    same = found >= planned
    do = "" if same else "start with launch.sh, with no flags of the KV pool behind it"
    return Comparison("KV tokens", f"{planned:,}", f"{found:,}", same, do)


def _others(each: AppliedLayer, ids: tuple[int, ...]) -> str:
    same_count = each.hot == len(ids)
    return ", other ones" if same_count and each.hot_sha256 != hot_digest(ids) else ""
