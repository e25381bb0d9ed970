"""The share of a routed expert that one GPU holds when it is cut over several, in any weight format."""

from placer.model import formats
from placer.model.spec import GPU_FORMAT, ModelSpec

MXFP4_HIDDEN = 256
"""What the hidden side of MXFP4 experts is rounded up to.

Server logs of gpt-oss on one H100 show 2,880 held as 3,072 in one dimension (13.47 and 64.38 GiB of weights for the 20B
and 120B models).
"""
_MARLIN_WIDTH = 64
"""vLLM and SGLang: check_moe_marlin_supports_layer asks widths to be multiples of it, and of the group."""


def expert_share_bytes(model: ModelSpec, expert_tp: int, expert_format: str | None = None) -> int:
    """What one expert takes from each of the ``expert_tp`` GPUs that it is cut over.

    ``expert_format`` is that of `ModelSpec.expert_format` on the GPU unless another one is served. MXFP4 experts are
    padded: each GPU takes whole blocks of 32 columns, the last one fewer (sglang/srt/models/gpt_oss.py,
    _load_mxfp4_experts_weights), and their hidden side is a multiple of `MXFP4_HIDDEN`; biases are held beside them.
    """
    form = expert_format or model.expert_format["gpu"]
    if form != "mxfp4":
        return -(-model.expert_bytes(form) // expert_tp)
    width = _mxfp4_columns(model, expert_tp)
    hidden = _rounded_up(model.expert_hidden_size, MXFP4_HIDDEN)
    biases = 2 * (2 * width + hidden) if model.expert_bias_parameters else 0
    return formats.expert_bytes(form, H=hidden, width=width) + biases


def cut_problem(model: ModelSpec, expert_tp: int) -> str | None:
    """Why the experts that GPUs hold cannot be cut over ``expert_tp`` of them, or None: a cut leaves scales whole."""
    form = model.expert_format["gpu"]
    if form in (GPU_FORMAT, "mxfp4_f32"):
        return model.fp8_tp_problem(expert_tp)
    width = model.expert_intermediate_size
    if form == "mxfp4":
        # GPUs take whole blocks in turn.
        if (expert_tp - 1) * _mxfp4_columns(model, expert_tp) < width:
            return None
        return f"tp {expert_tp} leaves GPUs without a block of 32 of the experts' {width:,} columns"
    side = _whole_columns(form)
    if expert_tp == 1 or width % (expert_tp * side) == 0:
        return None
    return (
        f"tp {expert_tp} cuts the experts' width {width:,} to {width / expert_tp:,g}, which is no multiple of "
        f"{side} as {form} experts need it"
    )


def _whole_columns(form: str) -> int:
    """Columns of an expert's width that no cut may divide."""
    grouped = {"mxfp8": formats.GROUP, "nvfp4": formats.NVFP4_GROUP}
    if form.startswith(("int", "gptq", "awq")):
        return max(_MARLIN_WIDTH, formats.packed_format(form).group or 0)
    # Scales per output row or matrix are cut anywhere.
    return grouped.get(form, 1)


def _mxfp4_columns(model: ModelSpec, expert_tp: int) -> int:
    return _rounded_up(-(-model.expert_intermediate_size // expert_tp), formats.GROUP)


def _rounded_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
