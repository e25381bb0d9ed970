"""What a checkpoint's quantization_config says: the format, and which modules it covers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placer.errors import BadInputError
from placer.model.config import Config
from placer.model.formats import FP8_BLOCK, GROUP
from placer.model.module_patterns import ModulePatterns, module_patterns

_PLAIN = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


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
    """

    format: str
    plain: str
    block: tuple[int, int] = FP8_BLOCK
    targets: ModulePatterns | None = None
    skipped: ModulePatterns | None = None

    def format_of(self, module: str) -> str:
        """Format of the linear layer ``module`` (``model.layers.3.self_attn.q_proj``)."""
        if self.skipped is not None and self.skipped.match(module):
            return self.plain
        return self.format if self.targets is None or self.targets.match(module) else self.plain


def quantization_of(config: Config) -> Quantization:
    """Read ``quantization_config`` and the plain dtype.

    Raises
    ------
    BadInputError
        When the method, or a setting that changes sizes, is not one that placer can size.
    """
    plain = _plain_format(config)
    section = config.quantization
    if section is None:
        return Quantization(plain, plain)
    method = section.get("quant_method")
    if method in ("fp8", "mxfp4"):
        skipped = module_patterns(_patterns(section, "modules_to_not_convert"))
        if method == "fp8":
            return Quantization("fp8_block", plain, _block(section), skipped=skipped)
        # Transformers converts nothing but experts to MXFP4 (integrations/mxfp4.py).
        return Quantization("mxfp4", plain, targets=module_patterns(["experts"]), skipped=skipped)
    if method == "compressed-tensors":
        return _compressed_tensors(section, plain)
    raise BadInputError(
        f"{config.path}: quantization_config.quant_method {method!r} has no sizing rule",
        "give a bf16, block-FP8 (fp8), mxfp4 or compressed-tensors checkpoint",
    )


def _plain_format(config: Config) -> str:
    name = config.text("torch_dtype", default=config.text("dtype", default="bfloat16"))
    if name not in _PLAIN:
        raise config.error("torch_dtype", name, f"one of {', '.join(_PLAIN)}")
    return _PLAIN[name]


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
        raise BadInputError(
            "quantization_config.config_groups is not a non-empty object",
            "restore the checkpoint's config.json",
        )
    formats = {_group_format(group.get("weights")) for group in groups.values()}
    if len(formats) > 1:
        raise BadInputError(
            f"quantization_config.config_groups mixes {', '.join(sorted(formats))}",
            "give a checkpoint with one weight format",
        )
    targets: list[str] = []
    for group in groups.values():
        targets += _patterns(group, "targets")
    return Quantization(
        formats.pop(),
        plain,
        targets=None if "Linear" in targets else module_patterns(targets),
        skipped=module_patterns(_patterns(section, "ignore")),
    )


def _group_format(weights: object) -> str:
    if not isinstance(weights, dict):
        raise BadInputError(
            "quantization_config.config_groups.*.weights is missing", "restore the checkpoint's config.json"
        )
    kind = (weights.get("type"), weights.get("num_bits"), weights.get("strategy"))
    if kind == ("float", 8, "channel"):
        return "fp8_channel"
    if kind == ("int", 4, "group") and weights.get("group_size") == GROUP and weights.get("symmetric", True):
        return "int4_g32"
    raise BadInputError(
        "quantization_config.config_groups.*.weights (type, num_bits, strategy, group_size) = "
        f"{(*kind, weights.get('group_size'))!r} has no sizing rule",
        "give FP8 per channel or symmetric INT4 in groups of 32",
    )


def _patterns(section: Mapping[str, Any], name: str) -> list[str]:
    entries = section.get(name)
    if entries is None:
        return []
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise BadInputError(
            f"quantization_config.{name} is not a list of module names",
            "restore the checkpoint's config.json",
        )
    return entries
