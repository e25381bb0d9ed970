"""Served experts: the weight format and the kernel in which a way of running a model holds its experts on GPUs."""

from dataclasses import replace

from placer.model.spec import GPU_FORMAT, ModelSpec
from placer.modes.mode import Cache, Mode

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


def paging_problem(model: ModelSpec, cache: Cache | None, gpus: int) -> str | None:
    """Why no runtime keeps a cache of experts like this, or None."""
    if cache is not Cache.LRU:
        return None
    if gpus > 1:
        return "SGLang's paged experts run on one GPU only: on more, this row is what they would give"
    form = served_model(model, Mode.STREAMED).gpu_format
    if not form.startswith(_PAGED):
        return f"SGLang's paged experts do not take {form}: this row is what they would give"
    return None
