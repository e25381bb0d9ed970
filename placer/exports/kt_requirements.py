"""What a plan and its model must be for sglang-kt 0.7.2 to run them."""

from collections.abc import Mapping
from typing import Any

from placer.errors import BadInputError
from placer.exports.kt_architectures import SPLIT_ARCHITECTURES, architecture_of
from placer.exports.kt_expert_limits import BLOCK, GGUF_BLOCK, OTHER_KERNELS
from placer.exports.kt_selection import RUNTIME, KtLayout, kt_layout, unwrapped
from placer.placement import PlacementDocument

WHOLE_LAYERS = "--runtime llama.cpp and --runtime vllm keep whole layers on the GPU and take every size"


def checked_layout(placement: PlacementDocument, config: Mapping[str, Any]) -> KtLayout:
    """The layers and experts of ``config``, a model's config.json, as the runtime counts them.

    Raises
    ------
    BadInputError
        When the runtime cannot run the plan: its CPU method, its expert sizes, or what else the model has.
    """
    if placement.cpu_method in OTHER_KERNELS:
        raise BadInputError(
            f"the plan was timed with {OTHER_KERNELS[placement.cpu_method]}, which {RUNTIME} does not run",
            _other_kernel_cure(placement, config),
        )
    layout = kt_layout(config)
    model, text = placement.model, unwrapped(config)
    if model.experts != layout.experts or model.layers[-1] >= layout.num_layers:
        raise BadInputError(
            f"config.json has {layout.num_layers} layers of {layout.experts} experts; the placement was made "
            f"for {model.experts} experts in layers up to {model.layers[-1]}",
            "give the config.json of the model that was planned for",
        )
    if str(text.get("model_type", "")).startswith("glm5_next"):
        raise BadInputError(
            f"{RUNTIME} runs GLM-5-Next with --kt-method FP8 only, not {placement.cpu_method}",
            "no CPU method of placer runs this model",
        )
    architecture = architecture_of(config)
    if architecture is not None and architecture not in SPLIT_ARCHITECTURES:
        raise BadInputError(
            f"{RUNTIME} has no {architecture} whose experts KT can split: every expert would be loaded to the GPU, "
            "silently",
            "serve the model with another runtime",
        )
    for name, width in (("hidden_size", text.get("hidden_size")), expert_width(text)):
        if not whole_blocks(width):
            raise BadInputError(
                f"config.json: {name} is {width!r}, which {BLOCK} does not divide",
                f"the runtime's FP8 and INT4 expert kernels cannot run this model; {WHOLE_LAYERS}",
            )
    _check_widths(placement, *expert_width(text))
    return layout


def whole_blocks(width: object) -> bool:
    """Whether kt-kernel can cut a ``width`` of an expert into blocks."""
    return isinstance(width, int) and width > 0 and width % BLOCK == 0


def _other_kernel_cure(placement: PlacementDocument, config: Mapping[str, Any]) -> str:
    text = unwrapped(config)
    widths = (text.get("hidden_size"), expert_width(text)[1])
    if not all(whole_blocks(width) for width in widths):
        return (
            f"kt-kernel takes only sizes that {BLOCK} divides, and an expert here is {widths[0]} by {widths[1]}; "
            f"{WHOLE_LAYERS}"
        )
    return "profile with --cpu-kernel kt and solve again"


def _check_widths(placement: PlacementDocument, name: str, width: int) -> None:
    """Raise BadInputError unless GPUs and CPU pools can cut an expert of ``width`` into whole blocks."""
    if width % (BLOCK * placement.tp):
        raise BadInputError(
            f"config.json: {name} {width} over tp {placement.tp} GPUs leaves {width / placement.tp:g}, not whole "
            f"FP8 blocks of {BLOCK}: {RUNTIME} refuses to load it",
            "solve again with a smaller --tp",
        )
    pools = 1 if placement.kt is None else placement.kt.subpools
    if placement.cpu_method == "LLAMAFILE" and (width % GGUF_BLOCK or width // GGUF_BLOCK < pools):
        raise BadInputError(
            f"config.json: {name} {width} is not {pools} or more whole blocks of {GGUF_BLOCK}, one for each CPU "
            "pool: LLAMAFILE refuses it",
            "profile with fewer NUMA pools or another --cpu-kernel, and solve again",
        )


def expert_width(text: Mapping[str, Any]) -> tuple[str, Any]:
    """The field that holds the intermediate width of one routed expert, and its value."""
    name = "moe_intermediate_size"
    if text.get(name) is None:
        name = "intermediate_size"
    return name, text.get(name)
