"""Served experts: the weight format and the kernel in which a way of running a model holds its experts on GPUs."""

from dataclasses import replace

from placer.exports.kt_architectures import SPLIT_ARCHITECTURES
from placer.exports.kt_expert_limits import BLOCK, OTHER_KERNELS
from placer.exports.vllm_cold_path import COLD_PATHS
from placer.model.spec import GPU_FORMAT, ModelSpec
from placer.modes.mode import Cache, Mode, Way
from placer.runtime.vllm.support import ARCHITECTURES

_PLAIN = ("f32", "f16", "bf16")
_KERNELS = {
    "fp8": "fused FP8 experts",
    "mxfp8": "MXFP8 experts",
    "mxfp4_f32": "SGLang's FP4 experts",
    "mxfp4": "Triton's MXFP4 experts",
    "nvfp4": "FP4 experts",
    "int": "Marlin's fused experts",
    "gptq": "Marlin's fused experts",
    "awq": "Marlin's fused experts",
}
"""Kernels by how a format's name starts, the first that does."""
_PAGED = ("f32", "f16", "bf16", "fp8", "gptq", "awq", "mxfp4", "nvfp4")
"""Formats that SGLang's paged experts take, by how their names start (sglang/srt/layers/moe/paged_experts)."""


def served_model(model: ModelSpec, mode: Mode) -> ModelSpec:
    """``model`` with the format that ``mode`` holds its experts in on GPUs.

    Where GPUs compute all of them, a quantised checkpoint is served as it is stored, and a plain one in block FP8.
    Hot experts beside cold ones are in the format that placer plans them in.
    """
    stored = model.checkpoint_format
    if mode is Mode.HOT_COLD or stored in _PLAIN or model.gpu_format != GPU_FORMAT:
        return model
    return replace(model, gpu_format=stored)


def kernel_of(form: str) -> str:
    """Which kernel computes experts in ``form`` on GPUs, in words."""
    return next(kernel for start, kernel in _KERNELS.items() if form.startswith(start))


def experts_origin(model: ModelSpec, mode: Mode) -> str:
    """What GPUs hold experts in under ``mode``, on which kernel, and why where that is not what is stored."""
    held, stored = served_model(model, mode).gpu_format, model.checkpoint_format
    said = f"experts in {held} ({kernel_of(held)})"
    if held == stored:
        return f"{said}, as stored" + (", padded in memory to whole blocks" if held == "mxfp4" else "")
    if held != GPU_FORMAT:
        return f"{said}: the runtime repacks the checkpoint's {stored}"
    if stored in _PLAIN:
        return f"{said}: the checkpoint's {stored} is taken as quantised to FP8"
    return (
        f"{said}: hot experts are planned in block FP8, as sglang-kt serves them from a block-FP8 checkpoint; "
        f"this one's {stored} has to be converted"
    )


def runtime_problem(model: ModelSpec, way: Way, cpu_method: str) -> str | None:
    """Why no runtime runs ``model`` in this way, cold experts by ``cpu_method``, or None."""
    if way.mode is Mode.HOT_COLD:
        return split_problem(model, cpu_method, way.parallel.tp)
    return paging_problem(model, way.cache, way.parallel.gpus)


def paging_problem(model: ModelSpec, cache: Cache | None, gpus: int) -> str | None:
    """Why no runtime keeps a cache of experts like this, or None."""
    if cache is not Cache.LRU:
        return None
    if gpus > 1:
        return "SGLang's paged experts run on one GPU only"
    form = served_model(model, Mode.STREAMED).gpu_format
    if not form.startswith(_PAGED):
        return f"SGLang's paged experts do not take {form}"
    return None


def split_problem(model: ModelSpec, cpu_method: str, tp: int) -> str | None:
    """Why no runtime splits experts between GPU and CPU like this, or None."""
    kt, plugin = _beyond_sglang_kt(model, cpu_method), _beyond_plugin(model, cpu_method, tp)
    if kt is None or plugin is None:
        return None
    return f"{kt}, and {plugin}"


def sglang_split_problem(model: ModelSpec, cpu_method: str) -> str | None:
    """Why sglang-kt does not split experts between GPU and CPU like this, or None."""
    return _beyond_sglang_kt(model, cpu_method)


def _beyond_sglang_kt(model: ModelSpec, cpu_method: str) -> str | None:
    if cpu_method in OTHER_KERNELS:
        return f"sglang-kt does not run {OTHER_KERNELS[cpu_method]}"
    if model.architecture not in SPLIT_ARCHITECTURES:
        return f"sglang-kt has no {model.architecture} whose experts it can split"
    if model.expert_hidden_size % BLOCK or model.expert_intermediate_size % BLOCK:
        return f"sglang-kt runs experts of multiples of {BLOCK} only"
    return None


def _beyond_plugin(model: ModelSpec, cpu_method: str, tp: int) -> str | None:
    if cpu_method not in COLD_PATHS:
        return f"placer's vLLM plugin does not run {cpu_method}"
    if model.architecture not in ARCHITECTURES:
        return f"placer's vLLM plugin does not run {model.architecture}"
    return "placer's vLLM plugin runs on one GPU" if tp > 1 else None
