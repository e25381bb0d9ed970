"""KV pools as the runtimes allocate them: what SGLang makes of its flags, and vLLM's blocks."""

from dataclasses import dataclass, replace
from typing import Any

from placer.compressed_pool import PAGE_TOKENS as COMPRESSED_PAGE_TOKENS
from placer.compressed_pool import CompressedPools
from placer.errors import BadInputError
from placer.model.spec import ModelSpec
from placer.pool import Pool, pools_bytes
from placer.window_pool import TwoPools, has_two_pools, window_ratio, window_tokens

VLLM_BLOCK_TOKENS = 16
"""Tokens of one block of vLLM's cache (vllm/config/cache.py, the default on CUDA)."""

_SPARSE_PAGE_TOKENS = 64


@dataclass(frozen=True)
class KvPlan:
    """A KV pool with the flags that make SGLang allocate it.

    Attributes
    ----------
    tokens
        Tokens of context that find room.
    max_total_tokens
        The ``--max-total-tokens`` for it; fewer than ``tokens`` where windowed layers keep only a share.
    window_ratio
        The ``--swa-full-tokens-ratio``, or None where the runtime does not read it.
    page_tokens
        Tokens of a page.
    pools
        What is allocated, per GPU.
    claimed_bytes
        Memory that SGLang must find free before it grants ``max_total_tokens``.
    """

    tokens: int
    max_total_tokens: int
    window_ratio: float | None
    page_tokens: int
    pools: tuple[Pool, ...]
    claimed_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes of all pools."""
        return pools_bytes(self.pools)


def sglang_page_tokens(model: ModelSpec) -> int:
    """Tokens of a page of SGLang's pool: 1, but 64 for sparse attention and 256 for a compressed cache.

    Source: sglang/srt/server_args.py, which sets the page for DeepSeek's sparse and compressed attention.
    """
    fields = _fields(model)
    if fields.get("compress_ratios"):
        return COMPRESSED_PAGE_TOKENS
    return _SPARSE_PAGE_TOKENS if fields.get("index_topk") else 1


def sglang_pool_tokens(tokens: int, page_tokens: int) -> int:
    """``tokens`` in whole pages, as SGLang rounds down to them."""
    return -(-tokens // page_tokens) * page_tokens


def sglang_pool_bytes(tokens: int, page_tokens: int, token_bytes: int) -> int:
    """Bytes of SGLang's pool for ``tokens``: whole pages and one more, which padded tokens write to.

    Source: sglang/srt/mem_cache/memory_pool.py, buffers of size + page_size slots.
    """
    return (sglang_pool_tokens(tokens, page_tokens) + page_tokens) * token_bytes


def sglang_window_ratio(
    model: ModelSpec, *, tokens: int, running: int, request_tokens: int, chunk_tokens: int
) -> float | None:
    """The ``--swa-full-tokens-ratio`` that ``running`` requests need, or None where it is not read."""
    if not (has_two_pools(model.architecture) and window_tokens(model)) and not _compressed(model):
        return None
    return window_ratio(
        model,
        tokens=tokens,
        running=running,
        request_tokens=request_tokens,
        chunk_tokens=chunk_tokens,
        page_tokens=sglang_page_tokens(model),
    )


def sglang_kv_plan(
    model: ModelSpec,
    *,
    tokens: int,
    ratio: float | None,
    attention_tp: int,
    kv_dtype: str,
    layers: int | None = None,
    speculative: bool = False,
) -> KvPlan:
    """The pool that holds ``tokens`` at least, on a GPU whose stage holds ``layers`` layers (None: all).

    ``ratio`` is that of `sglang_window_ratio`; None keeps every token in every layer. Layers that cache are
    taken as spread evenly over stages.
    """
    page = sglang_page_tokens(model)
    pools: tuple[Pool, ...]
    if _compressed(model):
        compressed = CompressedPools.of(_fields(model), ratio=ratio or 1.0, speculative=speculative)
        flag = compressed.least_flag(tokens)
        held, pools = compressed.tokens(flag)[0], compressed.pools(flag)
        claimed = compressed.claimed_bytes(flag)
    else:
        layout = _two_pools(model, attention_tp, kv_dtype, page, ratio or 1.0)
        if ratio is None:
            # One pool, in which windowed layers keep every token too.
            flag = held = sglang_pool_tokens(tokens, page)
            pools = (
                Pool(
                    "full", held, held + page, layout.every_bytes, layout.full_layers + layout.window_layers
                ),
            )
        else:
            flag = layout.least_flag(tokens)
            held, pools = max(layout.tokens(flag)), layout.pools(flag)
        claimed = flag * layout.every_bytes
    if layers is not None and layers != model.num_layers:
        pools = tuple(
            replace(pool, slot_bytes=-(-pool.slot_bytes * layers // model.num_layers)) for pool in pools
        )
        claimed = -(-claimed * layers // model.num_layers)
    return KvPlan(held, flag, ratio, page, pools, claimed)


def draft_cache_bytes(
    model: ModelSpec, *, tokens: int, ratio: float | None, attention_tp: int, kv_dtype: str
) -> int:
    """The cache of the one layer that drafts, beside a pool of ``tokens``."""
    if _compressed(model):
        compressed = CompressedPools.of(_fields(model), ratio=ratio or 1.0, speculative=True)
        return compressed.draft_bytes(compressed.least_flag(tokens))
    per_token = max(
        group.bytes_per_token(attention_tp, kv_dtype) // group.layers
        for group in model.cache
        if group.window_tokens is None
    )
    return sglang_pool_bytes(tokens, sglang_page_tokens(model), per_token)


def holds_kv_dtype(model: ModelSpec, kv_dtype: str) -> bool:
    """Whether SGLang keeps the model's cache in this precision: a compressed one is FP8 only."""
    return kv_dtype == "fp8" or not _compressed(model)


def check_kv_settings(model: ModelSpec, *, chunk_tokens: int, kv_dtype: str, flag: str) -> None:
    """Raise BadInputError for a chunk (``flag`` names it) or a KV precision that SGLang refuses.

    Source: sglang/srt/server_args.py, check_server_args and the settings of DeepSeek-V4.
    """
    page = sglang_page_tokens(model)
    if chunk_tokens % page:
        raise BadInputError(
            f"{flag} {chunk_tokens} is not a whole number of pages: SGLang keeps {page} tokens of {model.name} a page",
            f"give a multiple of {page}",
        )
    if not holds_kv_dtype(model, kv_dtype):
        raise BadInputError(
            f"--kv-dtype {kv_dtype}: SGLang keeps the compressed cache of {model.name} in FP8 only",
            "give --kv-dtype fp8",
        )


def vllm_kv_cache_memory_bytes(tokens: int, token_bytes: int) -> int:
    """The ``--kv-cache-memory-bytes`` (per GPU) with which vLLM holds ``tokens``.

    Whole blocks of 16 tokens and the null block that vLLM keeps for itself (vllm/v1/core/block_pool.py).
    Holds where all layers cache alike; vLLM grows the blocks of hybrid models.
    """
    blocks = -(-tokens // VLLM_BLOCK_TOKENS) + 1
    return blocks * VLLM_BLOCK_TOKENS * token_bytes


def _fields(model: ModelSpec) -> dict[str, Any]:
    fields: dict[str, Any] = model.config.get("text_config") or model.config
    return fields


def _compressed(model: ModelSpec) -> bool:
    return bool(_fields(model).get("compress_ratios"))


def _two_pools(model: ModelSpec, attention_tp: int, kv_dtype: str, page: int, ratio: float) -> TwoPools:
    full = [group for group in model.cache if group.window_tokens is None]
    windowed = [group for group in model.cache if group.window_tokens is not None]
    layers = sum(group.layers for group in windowed)
    window_bytes = sum(group.bytes_per_token(attention_tp, kv_dtype) for group in windowed)
    return TwoPools(
        full_bytes=sum(group.bytes_per_token(attention_tp, kv_dtype) for group in full),
        full_layers=max((group.layers for group in full), default=0),
        # Windowed layers of the models with two pools are all alike.
        window_layer_bytes=-(-window_bytes // layers) if layers else 0,
        window_layers=layers,
        page_tokens=page,
        ratio=ratio,
    )
