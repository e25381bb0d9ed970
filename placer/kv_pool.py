"""KV pools as the runtimes round them: SGLang's pages, vLLM's blocks."""

from placer.model.spec import ModelSpec

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


def vllm_kv_cache_memory_bytes(tokens: int, token_bytes: int) -> int:
    """The ``--kv-cache-memory-bytes`` (per GPU) with which vLLM holds ``tokens``.

    Whole blocks of 16 tokens and the null block that vLLM keeps for itself (vllm/v1/core/block_pool.py).
    Holds where all layers cache alike; vLLM grows the blocks of hybrid models.
    """
    blocks = -(-tokens // VLLM_BLOCK_TOKENS) + 1
    return blocks * VLLM_BLOCK_TOKENS * token_bytes
