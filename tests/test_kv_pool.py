"""KV pools: whole pages in SGLang, whole blocks in vLLM, and what each keeps beside them."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import tiny_model

from placer.kv_pool import (
    sglang_page_tokens,
    sglang_pool_bytes,
    sglang_pool_tokens,
    vllm_kv_cache_memory_bytes,
)


def test_sglang_holds_whole_pages_and_one_more() -> None:
    assert sglang_pool_tokens(40_960, 1) == 40_960
    assert sglang_pool_tokens(40_961, 64) == 41_024
    assert sglang_pool_bytes(40_960, 1, 10) == 409_610
    assert sglang_pool_bytes(40_961, 64, 10) == (41_024 + 64) * 10


def test_vllm_holds_whole_blocks_and_a_null_block() -> None:
    assert vllm_kv_cache_memory_bytes(16, 10) == 320
    assert vllm_kv_cache_memory_bytes(17, 10) == 480


@given(tokens=st.integers(1, 10**7), page=st.sampled_from([1, 16, 64, 256]))
def test_what_a_pool_promises_it_holds(tokens: int, page: int) -> None:
    # SGLang rounds the flag down to pages, so a flag in whole pages keeps every token.
    flag = sglang_pool_tokens(tokens, page)
    assert flag // page * page == flag
    assert tokens <= flag < tokens + page
    blocks = vllm_kv_cache_memory_bytes(tokens, 7) // (16 * 7)
    assert (blocks - 1) * 16 >= tokens > (blocks - 2) * 16


@pytest.mark.parametrize(
    ("fields", "page"),
    [
        ({}, 1),
        ({"index_topk": 2048}, 64),
        ({"index_topk": 512, "compress_ratios": [0, 4, 128]}, 256),
        ({"text_config": {"index_topk": 2048}}, 64),
        ({"index_topk": None, "compress_ratios": []}, 1),
    ],
)
def test_sparse_and_compressed_caches_have_larger_pages(
    tmp_path: Path, fields: dict[str, object], page: int
) -> None:
    model = tiny_model(tmp_path)
    assert sglang_page_tokens(replace(model, config={**model.config, **fields})) == page
