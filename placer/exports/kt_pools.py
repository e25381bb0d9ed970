"""The sglang-kt flags that size its KV pools, and what makes them impossible to export."""

from collections.abc import Mapping
from typing import Any

from placer.errors import BadInputError
from placer.exports.flag import Flag
from placer.exports.kt_selection import RUNTIME, unwrapped
from placer.placement import PlacementDocument
from placer.window_pool import has_two_pools

_CURE = "solve again with this version of placer, which says so"


def pool_flags(placement: PlacementDocument, config: Mapping[str, Any]) -> list[Flag]:
    """Flags with which the runtime allocates exactly the pools that the ledger counts.

    Raises
    ------
    BadInputError
        When the placement does not say what this model's pools depend on, or the runtime refuses its cache.
    """
    kv = placement.kv
    flags = [
        Flag(
            "max-total-tokens",
            kv.max_total_tokens or kv.tokens,
            "KV capacity. The runtime's own estimate can be several times too high for MLA models."
            if kv.max_total_tokens in (None, kv.tokens)
            else f"Makes room for {kv.tokens:,} tokens: it counts as if every layer kept every token.",
        )
    ]
    if kv.page_tokens is not None:
        flags.append(Flag("page-size", kv.page_tokens, "Tokens of a page, which the pools are rounded to."))
    if kv.swa_full_tokens_ratio is not None:
        flags.append(
            Flag(
                "swa-full-tokens-ratio",
                kv.swa_full_tokens_ratio,
                "Share of the tokens that layers with a window keep: enough for every running request.",
            )
        )
    elif _shares_windows(placement, config):
        raise BadInputError(
            "the placement does not say what share of the tokens layers with a window keep "
            "(field kv.swa_full_tokens_ratio)",
            _CURE,
        )
    if kv.max_mamba_cache_size is not None:
        flags.append(
            Flag(
                "max-mamba-cache-size",
                kv.max_mamba_cache_size,
                "Slots for recurrent states; with its prefix cache the runtime wants three per request.",
            )
        )
    elif unwrapped(config).get("linear_num_value_heads") or unwrapped(config).get("linear_attn_config"):
        raise BadInputError(
            "the placement does not say how many recurrent states it keeps (field kv.max_mamba_cache_size)",
            _CURE,
        )
    if unwrapped(config).get("compress_ratios") and kv.dtype != "fp8":
        raise BadInputError(
            f"{RUNTIME} keeps this model's compressed cache in FP8 only, not {kv.dtype}",
            "solve again with --kv-dtype fp8",
        )
    return flags


def _shares_windows(placement: PlacementDocument, config: Mapping[str, Any]) -> bool:
    architectures = config.get("architectures") or [placement.model.architecture]
    windowed = any(unwrapped(config).get(name) for name in ("sliding_window", "attention_chunk_size"))
    return bool(windowed and (has_two_pools(architectures[0]) or unwrapped(config).get("compress_ratios")))
