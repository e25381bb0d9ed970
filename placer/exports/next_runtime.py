"""The runtime that a plan can be exported for next, and why those before it are passed over."""

from collections.abc import Callable
from dataclasses import dataclass

from placer.errors import BadInputError
from placer.exports.kt_flags import server_flags
from placer.exports.kt_requirements import checked_layout
from placer.exports.llama_cpp import check_llama_cpp
from placer.exports.vllm_flags import layer_offload, vllm_flags
from placer.exports.vllm_plugin import check_vllm_plugin
from placer.placement import PlacementDocument
from placer.profiler.serving.server import Scheduler


@dataclass(frozen=True)
class NextRuntime:
    """What ``--runtime`` takes for a plan.

    Attributes
    ----------
    name
        A runtime that splits the experts of a layer where one takes the plan, else one that keeps whole layers;
        None where every export would be refused.
    refused
        Why ``first`` would refuse the plan; None where it takes it.
    first
        The first choice: sglang-kt, or vllm-plugin where the latencies were predicted for vLLM's scheduler.
    whole_layers
        Whether ``name`` keeps whole layers on the GPU, so that the plan's hot experts are not what it runs.
    """

    name: str | None
    refused: str | None
    first: str = "sglang-kt"
    whole_layers: bool = False


def next_runtime(placement: PlacementDocument) -> NextRuntime:
    """The first runtime whose export does not refuse ``placement``, by the checks of the exports themselves."""
    # Nothing is left for a CPU: the runtime that has none comes first.
    if placement.every_expert_hot and _refusal(_check_vllm, placement) is None:
        return NextRuntime("vllm", None)
    splitting = [("sglang-kt", _check_sglang_kt), ("vllm-plugin", check_vllm_plugin)]
    if placement.runtime is not None and placement.runtime.scheduler == Scheduler.VLLM:
        splitting.reverse()
    (first, check_first), (second, check_second) = splitting
    refused = _refusal(check_first, placement)
    if refused is None:
        return NextRuntime(first, None, first)
    if _refusal(check_second, placement) is None:
        return NextRuntime(second, refused, first)
    for name, check in (("llama.cpp", check_llama_cpp), ("vllm", _check_vllm)):
        if _refusal(check, placement) is None:
            return NextRuntime(name, refused, first, whole_layers=True)
    return NextRuntime(None, refused, first)


def _refusal(check: Callable[[PlacementDocument], None], placement: PlacementDocument) -> str | None:
    try:
        check(placement)
    except BadInputError as error:
        return error.what
    return None


def _check_sglang_kt(placement: PlacementDocument) -> None:
    config = placement.model.config
    if config is None:
        # The config.json that export is given with --model-path decides, and nothing is known of it yet.
        return
    checked_layout(placement, config)
    if placement.mem_fraction_static is None:
        raise BadInputError("the placement does not say mem_fraction_static", "solve again")
    server_flags(
        placement,
        config,
        ratio=0.0,
        mem_fraction_static=placement.mem_fraction_static,
        model_path=None,
        kt_weight_path=None,
    )


def _check_vllm(placement: PlacementDocument) -> None:
    vllm_flags(placement, layer_offload(placement))
