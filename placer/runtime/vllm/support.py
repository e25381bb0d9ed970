"""Which engines, settings and models the plan can be honoured in; everything else is refused by name."""

from typing import Any

from placer.model.formats import FP8_BLOCK
from placer.runtime.load import Placement, PlacementError
from placer.runtime.vllm.refusal import Refusal
from placer.runtime.vllm.settings import CUDA, Settings

VERSION = (0, 32)
"""The one minor version of vLLM whose private names this plugin uses."""
ARCHITECTURES = (
    "DeepseekV3ForCausalLM",
    "Glm4MoeForCausalLM",
    "MixtralForCausalLM",
    "OlmoeForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3MoeForCausalLM",
)
"""Model classes that ran, each against the unpatched engine."""
LOAD_FORMATS = ("auto", "hf", "safetensors")
GPU_KERNELS = ("TritonExperts",)
"""MoE kernels on a GPU that skip the experts which the expert map leaves out (by reading; none has run)."""


def check_version(version: tuple[Any, ...], text: str) -> None:
    """Raise Refusal unless this is the minor version of vLLM that the plugin was made for."""
    if tuple(version[:2]) != VERSION:
        ours = ".".join(map(str, VERSION))
        raise Refusal(
            f"this is vLLM {text}, and the plugin works with {ours} alone", f"install vllm=={ours}.*"
        )


def check_engine(config: Any, placement: Placement, settings: Settings) -> None:
    """Raise Refusal when the plan cannot be honoured under this ``VllmConfig``."""
    model, parallel = config.model_config, config.parallel_config
    architecture = (model.hf_config.architectures or ["none"])[0]
    if architecture not in ARCHITECTURES:
        raise Refusal(f"the plugin does not know {architecture}", f"it knows {', '.join(ARCHITECTURES)}")
    if model.model_impl not in {"auto", "vllm"}:
        raise Refusal(f"--model-impl {model.model_impl} goes round vLLM's own layers", "leave it out")
    if placement.tp != 1:
        raise Refusal(f"the plan is for tp {placement.tp}", "solve for --tp 1: the plugin runs on one device")
    for flag, size in (
        ("--tensor-parallel-size", parallel.tensor_parallel_size),
        ("--pipeline-parallel-size", parallel.pipeline_parallel_size),
        ("--data-parallel-size", parallel.data_parallel_size),
        ("--prefill-context-parallel-size", parallel.prefill_context_parallel_size),
        ("--decode-context-parallel-size", parallel.decode_context_parallel_size),
    ):
        if size != 1:
            raise Refusal(f"{flag} is {size}", "leave it at 1: the plugin runs on one device")
    offload = config.offload_config
    for flag, wanted in (
        ("--enable-expert-parallel", parallel.enable_expert_parallel),
        ("--enable-eplb", parallel.enable_eplb),
        ("--enable-lora", config.lora_config is not None),
        ("--speculative-config", config.speculative_config is not None),
        ("--enable-sleep-mode", model.enable_sleep_mode),
        ("--cpu-offload-gb", offload.uva.cpu_offload_gb > 0),
        ("--offload-group-size", offload.prefetch.offload_group_size > 0),
    ):
        if wanted:
            raise Refusal(f"{flag} does not go with a placement", "leave it out")
    if config.load_config.load_format not in LOAD_FORMATS:
        raise Refusal(
            f"--load-format {config.load_config.load_format} is not read expert by expert",
            f"use one of {', '.join(LOAD_FORMATS)}",
        )
    if not isinstance(config.additional_config, dict):
        raise Refusal("--additional-config is no object of JSON", "leave it out")
    device = config.device_config.device_type
    _check_device(device, settings)
    _check_quantisation(config.quant_config, device)
    _check_model(model, placement)


def _check_device(device: str, settings: Settings) -> None:
    if device == "cpu":
        return
    if device != "cuda":
        raise Refusal(f"the device is {device}", "the plugin knows cpu, and cuda as an experiment")
    if not settings.experimental_cuda:
        raise Refusal("the plugin has never run on a GPU", f"set {CUDA}=experimental to try it")
    if settings.cold not in {"auto", "kt"}:
        raise Refusal("only kt-kernel runs beside a GPU", "leave PLACER_COLD out, or set it to kt")


def _check_quantisation(quantisation: Any, device: str) -> None:
    if quantisation is None:
        return
    name = quantisation.get_name()
    blocks = getattr(quantisation, "weight_block_size", None)
    if device == "cpu" or name != "fp8" or tuple(blocks or ()) != FP8_BLOCK:
        raise Refusal(
            f"the checkpoint is quantised ({name})",
            f"give one in bf16, or on a GPU one in FP8 by blocks of {' x '.join(map(str, FP8_BLOCK))}",
        )


def _check_model(model: Any, placement: Placement) -> None:
    from vllm.transformers_utils.repo_utils import get_hf_file_bytes  # noqa: PLC0415

    config = get_hf_file_bytes("config.json", model.model, model.revision)
    if config is None:
        raise Refusal(
            f"{model.model} has no config.json to compare the plan with", "give the checkpoint folder"
        )
    try:
        placement.check_config(config)
    except PlacementError as error:
        raise Refusal(str(error)) from None


def check_layer(layer: int, moe: Any, layer_arguments: dict[str, Any], placement: Placement) -> None:
    """Raise Refusal unless a layer with this ``FusedMoEConfig`` can be split as planned."""
    name = f"MoE layer {layer}"
    if layer not in placement.hot:
        raise Refusal(f"{name} of the model is not in the plan", "solve again for this model")
    for what, planned, found in (
        ("experts", placement.experts, moe.num_logical_experts),
        ("experts per token", placement.top_k, moe.experts_per_token),
    ):
        if planned != found:
            raise Refusal(f"{name} has {found} {what}, and the plan {planned}", "solve again for this model")
    if moe.num_experts != moe.num_local_experts or moe.num_experts != moe.num_logical_experts:
        raise Refusal(f"the experts of {name} are spread over devices or doubled", "run it on one device")
    for what, present in (
        ("biases", moe.has_bias),
        ("LoRA", moe.is_lora_enabled),
        ("no gate projection", not moe.is_act_and_mul),
        (f"the activation {moe.activation.value}", moe.activation.value != "silu"),
        ("a clamped activation", moe.swiglu_limit is not None),
        ("router weights on its input", layer_arguments.get("apply_router_weight_on_input", False)),
        ("padded sizes", moe.hidden_dim != moe.hidden_dim_unpadded),
    ):
        if present:
            raise Refusal(
                f"{name} has {what}, which the cold path does not compute", "unset PLACER_PLACEMENT"
            )


def check_kernel(layer: int, quant_method: Any, on_gpu: bool) -> None:
    """Raise Refusal unless the kernel that the engine chose for ``layer`` leaves out experts as it is told."""
    if quant_method.is_monolithic:
        raise Refusal(
            f"the MoE kernel of layer {layer} routes by itself, so cold experts cannot be kept from it",
            "use --moe-backend triton",
        )
    kernel = quant_method.moe_kernel
    name = type(kernel.fused_experts).__name__ if kernel is not None else "none"
    if on_gpu and name not in GPU_KERNELS:
        raise Refusal(f"the MoE kernel of layer {layer} is {name}", "use --moe-backend triton")
