"""Which kind of attention every layer has, by the rules that families use."""

from collections.abc import Callable, Mapping
from typing import Any

from placer.model.config import MAX_LAYERS, Config

Kinds = Callable[[Config, int], tuple[str, ...]]


def named_kinds(field: str, names: Mapping[Any, str], *, drafting: bool = False) -> Kinds:
    """The list under ``field``, one entry per layer, each of which ``names`` translates.

    With ``drafting`` the list may go on for MTP layers.
    """

    def kinds(config: Config, num_layers: int) -> tuple[str, ...]:
        entries = config.items(field)
        if drafting:
            entries = entries[:num_layers]
        if len(entries) != num_layers or any(_key(entry) not in names for entry in entries):
            raise config.error(
                field, entries, f"{' or '.join(map(str, names))} for each of the {num_layers} layers"
            )
        return tuple(names[_key(entry)] for entry in entries)

    return kinds


def named_or_every(field: str, names: Mapping[Any, str], interval: str, *, default: int) -> Kinds:
    """The list under ``field``; without it, every ``interval``-th layer is ``full``, the rest ``linear``.

    Source: transformers/models/qwen3_next/configuration_qwen3_next.py.
    """
    named = named_kinds(field, names)

    def kinds(config: Config, num_layers: int) -> tuple[str, ...]:
        every = config.count(interval, most=MAX_LAYERS, default=default)
        if config.has(field):
            return named(config, num_layers)
        return tuple("linear" if (layer + 1) % every else "full" for layer in range(num_layers))

    return kinds


def _key(entry: object) -> object:
    # Numbers and names only: True would pass for 1, a list could not be looked up.
    return entry if isinstance(entry, str | int) and not isinstance(entry, bool) else None


def chunked_kinds(config: Config, num_layers: int) -> tuple[str, ...]:
    """``chunked`` or ``full`` by ``layer_types``, ``no_rope_layers`` or ``no_rope_layer_interval`` (Llama-4).

    Every fourth layer sees the whole context unless config.json says otherwise
    (transformers/models/llama4/configuration_llama4.py).
    """
    every = config.count("no_rope_layer_interval", most=MAX_LAYERS, default=4)
    if config.has("layer_types"):
        names = {"full_attention": "full", "chunked_attention": "chunked"}
        config.ignore(("no_rope_layers",))
        return named_kinds("layer_types", names)(config, num_layers)
    if config.items("no_rope_layers"):
        # 1 where positions are rotated, which are the chunked layers.
        return named_kinds("no_rope_layers", {0: "full", 1: "chunked"})(config, num_layers)
    return tuple("chunked" if (layer + 1) % every else "full" for layer in range(num_layers))


def indexer_kinds(config: Config, num_layers: int) -> tuple[str, ...]:
    """``full`` where a layer has its own indexer, ``shared`` where it takes another layer's selection.

    By ``indexer_types`` (GLM-5.2); every layer has its own without it.
    """
    if not config.has("indexer_types"):
        return ("full",) * num_layers
    config.ignore(("index_topk_freq", "index_topk_pattern", "index_skip_topk_offset"))
    return named_kinds("indexer_types", {"full": "full", "shared": "shared"})(config, num_layers)
