"""KV pools as the runtimes round them: SGLang's pages, vLLM's blocks."""

from placer.model.spec import ModelSpec
from placer.units import gib

VLLM_BLOCK_TOKENS = 16
"""Tokens of one block of vLLM's cache (vllm/config/cache.py, the default on CUDA)."""

_SPARSE_PAGE_TOKENS = 64
_COMPRESSED_PAGE_TOKENS = 256


def sglang_page_tokens(model: ModelSpec) -> int:
    """Tokens of a page of SGLang's pool: 1, but 64 for sparse attention and 256 for a compressed cache.

    Source: sglang/srt/server_args.py, which sets the page for DeepSeek's sparse and compressed attention.
    """
    fields = model.config.get("text_config") or model.config
    if fields.get("compress_ratios"):
        return _COMPRESSED_PAGE_TOKENS
    return _SPARSE_PAGE_TOKENS if fields.get("index_topk") else 1


def sglang_pool_tokens(tokens: int, page_tokens: int) -> int:
    """The ``--max-total-tokens`` that holds ``tokens``: whole pages, as SGLang rounds down to them."""
    return -(-tokens // page_tokens) * page_tokens


def sglang_pool_bytes(tokens: int, page_tokens: int, token_bytes: int) -> int:
    """Bytes of SGLang's pool for ``tokens``: whole pages and one more, which padded tokens write to.

    Source: sglang/srt/mem_cache/memory_pool.py, buffers of size + page_size slots.
    """
    return (sglang_pool_tokens(tokens, page_tokens) + page_tokens) * token_bytes


def sglang_window_note(model: ModelSpec, *, attention_tp: int, kv_tokens: int, kv_dtype: str) -> str | None:
    """What SGLang allocates for layers with a window beyond what the windows need; None without such layers.

    It sizes their pool as a share of the tokens, and the whole as if every layer kept every token
    (model_runner_kv_cache_mixin.py, set_num_tokens_hybrid_swa), so ``--max-total-tokens`` T costs T times
    the bytes of all layers and then holds more than T tokens.
    """
    windowed = sum(
        group.bytes_per_token(attention_tp, kv_dtype)
        for group in model.cache
        if group.window_tokens is not None
    )
    if not windowed:
        return None
    whole = kv_tokens * (windowed + model.kv_bytes_per_token_per_gpu(attention_tp, kv_dtype))
    return (
        f"SGLang gives windowed layers a share of the pool, not a window per request: --max-total-tokens "
        f"{kv_tokens} allocates {gib(whole)} per GPU there; lower it and --swa-full-tokens-ratio to reach "
        "what the ledger counts"
    )


def vllm_kv_cache_memory_bytes(tokens: int, token_bytes: int) -> int:
    """The ``--kv-cache-memory-bytes`` (per GPU) with which vLLM holds ``tokens``.

    Whole blocks of 16 tokens and the null block that vLLM keeps for itself (vllm/v1/core/block_pool.py).
    Holds where all layers cache alike; vLLM grows the blocks of hybrid models.
    """
    blocks = -(-tokens // VLLM_BLOCK_TOKENS) + 1
    return blocks * VLLM_BLOCK_TOKENS * token_bytes
