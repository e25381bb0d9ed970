"""Which layers of a model are MoE layers, by the rules that families use."""

from collections.abc import Callable
from typing import Any

from placer.model.config import MAX_LAYERS, Config

LayerRule = Callable[[Config, int], tuple[int, ...]]
"""Indices of the MoE layers of a config with so many layers, ascending."""


def every_layer(config: Config, num_layers: int) -> tuple[int, ...]:
    """All layers (Mixtral, OLMoE, gpt-oss, Phi-3.5-MoE, MiniMax-M2)."""
    del config
    return tuple(range(num_layers))


def after_dense_prefix(config: Config, num_layers: int) -> tuple[int, ...]:
    """Layers i >= first_k_dense_replace with i % moe_layer_freq == 0; a list moe_layer_freq is a mask.

    Source: transformers/models/deepseek_v3, modeling_deepseek.py of DeepSeek-V3.
    """
    first = config.count("first_k_dense_replace", least=0, most=MAX_LAYERS)
    if config.has("moe_layer_freq") and isinstance(config.fields["moe_layer_freq"], list):
        return tuple(i for i in _mask(config, num_layers) if i >= first)
    every = config.count("moe_layer_freq", most=MAX_LAYERS, default=1)
    return tuple(i for i in range(first, num_layers) if i % every == 0)


def sparse_step(config: Config, num_layers: int) -> tuple[int, ...]:
    """Layers outside mlp_only_layers with (i + 1) % decoder_sparse_step == 0 (Qwen3-MoE)."""
    step = config.count("decoder_sparse_step", most=MAX_LAYERS, default=1)
    dense = config.items("mlp_only_layers")
    if not all(isinstance(layer, int) and not isinstance(layer, bool) and layer >= 0 for layer in dense):
        raise config.error("mlp_only_layers", dense, "a list of layer indices")
    skipped = set(dense)
    return tuple(i for i in range(num_layers) if i not in skipped and (i + 1) % step == 0)


def typed_layers(field: str) -> LayerRule:
    """Layers whose entry of the list under ``field`` is ``sparse``; the others must be ``dense``."""

    def rule(config: Config, num_layers: int) -> tuple[int, ...]:
        kinds = config.items(field)
        if len(kinds) != num_layers or any(kind not in ("dense", "sparse") for kind in kinds):
            raise config.error(field, kinds, f"dense or sparse for each of the {num_layers} layers")
        return tuple(layer for layer, kind in enumerate(kinds) if kind == "sparse")

    return rule


def typed_or_after_prefix(config: Config, num_layers: int) -> tuple[int, ...]:
    """By ``mlp_layer_types`` where config.json has it (GLM-5.2), else `after_dense_prefix`."""
    if not config.has("mlp_layer_types"):
        return after_dense_prefix(config, num_layers)
    config.ignore(("first_k_dense_replace", "moe_layer_freq"))
    return typed_layers("mlp_layer_types")(config, num_layers)


def masked_or_after_prefix(config: Config, num_layers: int) -> tuple[int, ...]:
    """By ``mlp_layer_types``, else by a mask in ``moe_layer_freq`` alone (MiMo, MiniMax-M3)."""
    if config.has("mlp_layer_types"):
        return typed_or_after_prefix(config, num_layers)
    if config.has("first_k_dense_replace"):
        return after_dense_prefix(config, num_layers)
    return _mask(config, num_layers)


def interleaved(config: Config, num_layers: int) -> tuple[int, ...]:
    """``moe_layers``, or layers with (i + 1) % interleave_moe_layer_step == 0 (Llama-4).

    Source: transformers/models/llama4/configuration_llama4.py.
    """
    config.require("interleave_moe_layer_step", "moe_layers")
    step = config.count("interleave_moe_layer_step", most=MAX_LAYERS, default=1)
    if config.has("moe_layers"):
        return _indices(config, "moe_layers", config.items("moe_layers"), num_layers)
    return tuple(i for i in range(num_layers) if (i + 1) % step == 0)


def ranged(config: Config, num_layers: int) -> tuple[int, ...]:
    """Layers from moe_layer_start_index to moe_layer_end_index, every moe_layer_interval-th (ERNIE-4.5).

    Source: sglang/srt/models/ernie4.py, Ernie4Moe's decoder layer. An end of -1, or none, is the last layer.
    """
    first = config.count("moe_layer_start_index", least=0, most=MAX_LAYERS)
    last = config.count("moe_layer_end_index", least=-1, most=MAX_LAYERS, default=-1)
    every = config.count("moe_layer_interval", most=MAX_LAYERS, default=1)
    last = num_layers - 1 if last == -1 else min(last, num_layers - 1)
    return tuple(range(first, last + 1, every))


def enumerated(config: Config, num_layers: int) -> tuple[int, ...]:
    """The layers that ``moe_layers_enum`` lists, a string or a list; all but the first without it (Step-3)."""
    listed = config.fields.get("moe_layers_enum") if config.has("moe_layers_enum") else None
    if listed is None:
        return tuple(range(1, num_layers))
    if isinstance(listed, str):
        parts = [part.strip() for part in listed.split(",")]
        listed = [
            int(part) if part.isascii() and part.isdigit() and len(part) < 10 else part for part in parts
        ]
    if not isinstance(listed, list):
        raise config.error("moe_layers_enum", listed, "a list of layer indices")
    return _indices(config, "moe_layers_enum", listed, num_layers)


def enumerated_or_after_prefix(config: Config, num_layers: int) -> tuple[int, ...]:
    """By ``moe_layers_enum`` (Step-3.5), by ``mlp_layer_types``, else `after_dense_prefix`."""
    if config.has("moe_layers_enum"):
        return enumerated(config, num_layers)
    return typed_or_after_prefix(config, num_layers)


def after_skipped(field: str) -> LayerRule:
    """Layers i >= the number under ``field``, 0 without it (Hunyuan)."""

    def rule(config: Config, num_layers: int) -> tuple[int, ...]:
        return tuple(range(config.count(field, least=0, most=MAX_LAYERS, default=0), num_layers))

    return rule


def _mask(config: Config, num_layers: int) -> tuple[int, ...]:
    mask = config.items("moe_layer_freq")
    if len(mask) != num_layers or any(entry not in (0, 1) for entry in mask):
        raise config.error("moe_layer_freq", mask, f"one 0 or 1 for each of the {num_layers} layers")
    return tuple(i for i in range(num_layers) if mask[i])


def _indices(config: Config, name: str, entries: list[Any], num_layers: int) -> tuple[int, ...]:
    if not all(type(entry) is int and 0 <= entry < num_layers for entry in entries):
        raise config.error(name, entries, f"indices of the {num_layers} layers")
    return tuple(sorted(set(entries)))
