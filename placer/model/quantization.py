"""What a checkpoint's quantization_config says: the format, and which modules it covers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placer.errors import BadInputError
from placer.model.config import Config
from placer.model.formats import FP8_BLOCK, GROUP, NVFP4_GROUP, PACKED_BITS
from placer.model.module_patterns import ModulePatterns, module_patterns

_PLAIN = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_HINT = "give a bf16, fp8, mxfp4, mxfp8, nvfp4 (modelopt), compressed-tensors, gptq or awq checkpoint"
_RESTORE = "restore the checkpoint's config.json"
_MAX_GROUPS = 16


@dataclass(frozen=True)
class Quantization:
    """How a checkpoint stores its linear layers.

    Attributes
    ----------
    format
        Format of the quantised modules, a name of `placer.model.formats`; ``plain`` when none is.
    plain
        "bf16", "f16" or "f32": everything else.
    block
        Rows and columns per scale of block FP8.
    targets
        The covered modules; every linear layer when None.
    skipped
        Linear layers that stay plain; none when None.
    overrides
        Modules in another format than ``format``, the first that matches.
    """

    format: str
    plain: str
    block: tuple[int, int] = FP8_BLOCK
    targets: ModulePatterns | None = None
    skipped: ModulePatterns | None = None
    overrides: tuple[tuple[ModulePatterns, str], ...] = ()

    def format_of(self, module: str) -> str:
        """Format of the linear layer ``module`` (``model.layers.3.self_attn.q_proj``)."""
        if self.skipped is not None and self.skipped.match(module):
            return self.plain
        for patterns, form in self.overrides:
            if patterns.match(module):
                return form
        return self.format if self.targets is None or self.targets.match(module) else self.plain


def quantization_of(config: Config, beside: Mapping[str, Any] | None = None) -> Quantization:
    """Read ``quantization_config`` and the plain dtype.

    ``beside`` is the content of a file that quantises the checkpoint in the place of config.json, as a
    ``quantization_config`` would say it.

    Raises
    ------
    BadInputError
        When the method, or a setting that changes sizes, is not one that placer can size.
    """
    plain = _plain_format(config)
    section = beside if config.quantization is None else config.quantization
    if section is None:
        return Quantization(plain, plain)
    method = section.get("quant_method")
    if method is None and _algorithm(section) is not None:
        method = "modelopt"
    if method == "fp8":
        return _fp8(config, section, plain)
    if method == "mxfp8":
        return Quantization("mxfp8", plain, skipped=_skipped(section))
    if method == "mxfp4":
        # Transformers converts nothing but experts to MXFP4 (integrations/mxfp4.py).
        return Quantization("mxfp4", plain, targets=module_patterns(["experts"]), skipped=_skipped(section))
    if method == "compressed-tensors":
        return _compressed_tensors(section, plain)
    if method in ("gptq", "awq"):
        return _packed(section, plain, method)
    if method in ("modelopt", "modelopt_fp4"):
        return _modelopt(section, plain)
    raise BadInputError(
        f"{config.path}: quantization_config.quant_method {method!r} has no sizing rule", _HINT
    )


def _plain_format(config: Config) -> str:
    name = config.text("torch_dtype", default=config.text("dtype", default="bfloat16"))
    if name not in _PLAIN:
        raise config.error("torch_dtype", name, f"one of {', '.join(_PLAIN)}")
    return _PLAIN[name]


def _skipped(section: Mapping[str, Any]) -> ModulePatterns:
    return module_patterns(
        entry
        for name in ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
        for entry in _patterns(section, name)
    )


def _fp8(config: Config, section: Mapping[str, Any], plain: str) -> Quantization:
    """Block FP8, with the experts in four bits where ``expert_dtype`` says so (DeepSeek-V4)."""
    dtype = config.fields.get("expert_dtype", section.get("expert_dtype"))
    config.ignore(("expert_dtype",))
    if dtype not in (None, "fp8", "fp4"):
        raise config.error("expert_dtype", dtype, "fp4 or fp8")
    experts = (module_patterns(["experts"]), "mxfp4")
    overrides: tuple[tuple[ModulePatterns, str], ...] = (experts,) if dtype == "fp4" else ()
    algorithm = section.get("moe_quant_algo")
    if algorithm is not None:
        # The MTP layer keeps the format that the model was published in.
        drafting = tuple((module_patterns(["mtp.*.experts"]), form) for _, form in overrides)
        overrides = (*drafting, (module_patterns(["experts"]), _modelopt_format(algorithm)))
        return Quantization("fp8_block", plain, _block(section), overrides=overrides)
    return Quantization("fp8_block", plain, _block(section), skipped=_skipped(section), overrides=overrides)


def _block(section: Mapping[str, Any]) -> tuple[int, int]:
    block = section.get("weight_block_size")
    if not (
        isinstance(block, list)
        and len(block) == 2
        and all(isinstance(side, int) and not isinstance(side, bool) and 1 <= side <= 65536 for side in block)
    ):
        raise BadInputError(
            f"quantization_config.weight_block_size is {block!r}: placer sizes FP8 with one scale per block",
            "give a block-FP8 checkpoint ([128, 128])",
        )
    return block[0], block[1]


def _compressed_tensors(section: Mapping[str, Any], plain: str) -> Quantization:
    groups = section.get("config_groups")
    if not isinstance(groups, dict) or not groups or not all(isinstance(g, dict) for g in groups.values()):
        raise BadInputError("quantization_config.config_groups is not a non-empty object", _RESTORE)
    if len(groups) > _MAX_GROUPS:
        raise BadInputError(
            f"quantization_config.config_groups has {len(groups):,} groups, {_MAX_GROUPS} are read", _RESTORE
        )
    formats = [
        (_patterns(group, "targets"), _group_format(group.get("weights"))) for group in groups.values()
    ]
    skipped = _skipped(section)
    everywhere = [form for targets, form in formats if "Linear" in targets]
    if len(set(everywhere)) > 1:
        raise BadInputError(
            f"quantization_config.config_groups mixes {' and '.join(sorted(set(everywhere)))} for all layers",
            _RESTORE,
        )
    named = [(module_patterns(targets), form) for targets, form in formats if "Linear" not in targets]
    if everywhere:
        return Quantization(everywhere[0], plain, skipped=skipped, overrides=tuple(named))
    if len({form for _, form in named}) == 1:
        targets = module_patterns(entry for entries, _ in formats for entry in entries)
        return Quantization(named[0][1], plain, targets=targets, skipped=skipped)
    return Quantization(plain, plain, skipped=skipped, overrides=tuple(named))


def _group_format(weights: object) -> str:
    if not isinstance(weights, dict):
        raise BadInputError("quantization_config.config_groups.*.weights is missing", _RESTORE)
    kind, bits, strategy = weights.get("type"), weights.get("num_bits"), weights.get("strategy")
    size = weights.get("group_size")
    if kind == "float":
        by_strategy = {
            (8, "channel", None): "fp8_channel",
            (8, "tensor", None): "fp8_tensor",
            (4, "group", GROUP): "mxfp4",
            (4, "tensor_group", NVFP4_GROUP): "nvfp4",
            (8, "group", GROUP): "mxfp8",
        }
        key = (bits, strategy, size) if strategy in ("group", "tensor_group") else (bits, strategy, None)
        if _hashable(key) and key in by_strategy:
            return by_strategy[key]
        if (bits, strategy, weights.get("block_structure")) == (8, "block", list(FP8_BLOCK)):
            return "fp8_block"
    if kind == "int" and type(bits) is int and bits in PACKED_BITS and weights.get("symmetric", True) is True:
        if strategy == "channel":
            return f"int{bits}_channel"
        if strategy == "group" and type(size) is int and 1 <= size <= 65536:
            return f"int{bits}_g{size}"
    raise BadInputError(
        "quantization_config.config_groups.*.weights (type, num_bits, strategy, group_size) = "
        f"{(kind, bits, strategy, size)!r:.160} has no sizing rule",
        "give FP8 per channel, per tensor or per block, or symmetric INT4 or INT8",
    )


def _hashable(values: tuple[object, ...]) -> bool:
    return all(value is None or isinstance(value, str | int) for value in values)


def _packed(section: Mapping[str, Any], plain: str, method: str) -> Quantization:
    """GPTQ and AWQ: ``bits`` and ``group_size``, -1 for one scale per output."""
    bits = section.get("bits", section.get("w_bit"))
    size = section.get("group_size", section.get("q_group_size"))
    if type(bits) is not int or bits not in PACKED_BITS:
        raise BadInputError(
            f"quantization_config.bits is {bits!r:.60}, expected one of {', '.join(map(str, PACKED_BITS))}",
            _RESTORE,
        )
    if type(size) is not int or not (size == -1 or 1 <= size <= 65536):
        raise BadInputError(f"quantization_config.group_size is {size!r:.60}, expected a number", _RESTORE)
    excluded = _patterns(section, "modules_to_not_convert") + _patterns(section, "modules_in_block_to_skip")
    dynamic = section.get("dynamic") or {}
    if not isinstance(dynamic, dict):
        raise BadInputError("quantization_config.dynamic is not an object", _RESTORE)
    for entry in dynamic:
        if not entry.startswith("-:"):
            raise BadInputError(
                f"quantization_config.dynamic gives {entry[:80]!r} bits of its own, which has no sizing rule",
                "give a checkpoint with one weight format",
            )
        excluded.append("re:" + entry.removeprefix("-:"))
    group = "channel" if size == -1 else f"g{size}"
    return Quantization(f"{method}{bits}_{group}", plain, skipped=module_patterns(excluded))


_MODELOPT_FORMATS = {
    "FP8": "fp8_tensor",
    "FP8_PB_WO": "fp8_block",
    "NVFP4": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "MXFP8": "mxfp8",
}


def _algorithm(section: Mapping[str, Any]) -> object:
    inner = section.get("quantization")
    return (inner if isinstance(inner, dict) else section).get("quant_algo")


def _modelopt_format(algorithm: object) -> str:
    if not isinstance(algorithm, str) or algorithm not in _MODELOPT_FORMATS:
        raise BadInputError(
            f"modelopt's quant_algo {algorithm!r:.80} has no sizing rule",
            f"give a checkpoint in one of {', '.join(_MODELOPT_FORMATS)}",
        )
    return _MODELOPT_FORMATS[algorithm]


def _modelopt(section: Mapping[str, Any], plain: str) -> Quantization:
    inner = section.get("quantization")
    fields = inner if isinstance(inner, dict) else section
    skipped = _skipped(fields)
    algorithm = fields.get("quant_algo")
    if algorithm != "MIXED_PRECISION":
        return Quantization(_modelopt_format(algorithm), plain, skipped=skipped)
    layers = fields.get("quantized_layers")
    if not isinstance(layers, dict) or not layers:
        raise BadInputError("modelopt's quantized_layers is not a non-empty object", _RESTORE)
    named: dict[str, list[str]] = {}
    for name, layer in layers.items():
        form = _modelopt_format(layer.get("quant_algo") if isinstance(layer, dict) else None)
        named.setdefault(form, []).append(name)
    overrides = tuple((module_patterns(names), form) for form, names in named.items())
    return Quantization(plain, plain, skipped=skipped, overrides=overrides)


def _patterns(section: Mapping[str, Any], name: str) -> list[str]:
    entries = section.get(name)
    if entries is None:
        return []
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise BadInputError(f"quantization_config.{name} is not a list of module names", _RESTORE)
    return entries
