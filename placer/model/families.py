"""The model families that placer sizes, and which of them a config.json means.

To add a family, add an entry to the file of its kind of attention: where the counts and widths are in config.json,
the rule for MoE layers, the attention, and the names of its weights. Fields that no entry reads are refused by
`placer.model.blueprint` when they change a model's structure, so an entry that is too simple fails loudly.
"""

from collections.abc import Mapping
from typing import Any

from placer.errors import BadInputError
from placer.model.config import Config
from placer.model.family import EXPERT_COUNT_FIELDS, Family
from placer.model.grouped_families import GROUPED_FAMILIES
from placer.model.latent_families import LATENT_FAMILIES
from placer.model.mixed_families import MIXED_FAMILIES

FAMILIES = (*GROUPED_FAMILIES, *LATENT_FAMILIES, *MIXED_FAMILIES)


def knows(config: Config) -> bool:
    """Whether an entry describes the model type or architecture of ``config``."""
    return bool(_entries(config))


def family_of(config: Config) -> Family:
    """The family of ``config``, by its ``model_type`` (its architecture where that is absent).

    Raises
    ------
    BadInputError
        When model_type and architecture disagree, the model has no experts, or no family describes it: names
        the fields that stay uninterpreted.
    """
    model_type, architecture = _names(config)
    known = _entries(config)
    if known and (architecture is None or architecture in known[0].architectures):
        return known[0]
    if known:
        raise BadInputError(
            f"{config.path}: architectures {architecture!r} does not belong to model_type {model_type!r}",
            f"expected {' or '.join(known[0].architectures)}",
        )
    supported = ", ".join(name for family in FAMILIES for name in family.model_types)
    if not _speaks_of_experts(config.fields):
        raise BadInputError(
            f"{config.path}: {model_type or 'the model'} has no experts: none of "
            f"{', '.join(EXPERT_COUNT_FIELDS)} counts any",
            "placer places mixture-of-experts models: give one",
        )
    raise BadInputError(
        f"{config.path}: cannot interpret model_type {model_type!r} (architectures {config.architecture!r}): "
        f"no rule for its fields {', '.join(_shaping_fields(config))}",
        f"supported: {supported}; a new family is one entry in placer/model/families.py",
    )


def _speaks_of_experts(fields: Mapping[str, Any]) -> bool:
    """Whether a field, or one of an object among them, counts experts under whatever name."""
    inner = [value for name, value in fields.items() if isinstance(value, dict) and name.endswith("config")]
    return any(
        "expert" in name and "per_tok" not in name and type(value) in (int, list) and bool(value)
        for held in (fields, *inner)
        for name, value in held.items()
    )


def _names(config: Config) -> tuple[str, str | None]:
    """The language model's type, and the architecture where it is that of the language model."""
    model_type = config.text("model_type", default="")
    if config.nested and not model_type:
        outer = config.document.get("model_type")
        model_type = outer if isinstance(outer, str) else ""
    return model_type, None if config.nested else config.architecture


def _entries(config: Config) -> list[Family]:
    model_type, architecture = _names(config)
    return [
        family
        for family in FAMILIES
        if (model_type in family.model_types if model_type else architecture in family.architectures)
    ]


_SHAPING_WORDS = (
    "expert", "moe", "layer", "head", "lora", "linear", "conv", "ssm", "mamba", "window", "compress", "index",
    "nextn", "mtp", "hash", "sparse",
)  # fmt: skip
_EVERYWHERE = (
    "head_dim",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "max_window_layers",
)
_SHOWN_FIELDS = 24


def _shaping_fields(config: Config) -> list[str]:
    """Fields of ``config`` that look as if they shaped the model in its own way."""
    inner = {
        f"{name}.{field}"
        for name, value in config.fields.items()
        if isinstance(value, dict) and name.endswith("config") and name != "quantization_config"
        for field in value
    }
    names = [
        name
        for name in (*config.fields, *inner)
        if name not in _EVERYWHERE
        and name.replace(".", "_").isidentifier()
        and any(word in name for word in _SHAPING_WORDS)
    ]
    return sorted(names)[:_SHOWN_FIELDS]
