"""KV pools: whole pages in SGLang, whole blocks in vLLM, and what each keeps beside them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_configs import DEEPSEEK_V3_2, DEEPSEEK_V4_FLASH
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import tiny_model

from placer.demand import MemoryDemand
from placer.kv_pool import (
    sglang_page_tokens,
    sglang_pool_bytes,
    sglang_pool_tokens,
    vllm_kv_cache_memory_bytes,
)
from placer.model.spec import read_model
from placer.parallelism import Parallelism
from placer.profiler.serving.server import Scheduler, Server
from placer.profiler.serving.step_time import SampledStepTimes, StepSamples
from placer.serving import serving_figures
from placer.workload import Workload


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


@pytest.mark.parametrize(("config", "page"), [(DEEPSEEK_V4_FLASH, 256), (DEEPSEEK_V3_2, 64)])
def test_a_pool_of_pages_has_some_to_spare_beside_several_requests(
    tmp_path: Path, config: dict[str, Any], page: int
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model = read_model(tmp_path)
    assert sglang_page_tokens(model) == page

    def pool(running: int) -> int:
        return MemoryDemand(
            model, Parallelism(1), 1 << 40, running, 1024, "fp8", min_kv_tokens=0, request_tokens=1536
        ).settings.kv_tokens

    # A page, and half a page for each of seven others at SGLang's 0.7: 3.45 pages.
    assert pool(8) == 8 * 1536 + 4 * page
    # A lone request needs five tokens beyond its own, which fill a page.
    assert pool(1) == 1536 + page


def test_without_a_page_to_spare_the_last_request_waits_for_another_to_end() -> None:
    # Prompts of 100 ms; decode steps of 10 ms.
    times = SampledStepTimes(
        decode=(StepSamples(8, np.array([10_000.0]), 0.0, 0.0),),
        prefill=(StepSamples(1024, np.array([100_000.0]), 0.0, 0.0),),
        seed=0,
    )

    def ttft_ms(workload: Workload, spare: int) -> float:
        request = sglang_pool_tokens(workload.request_tokens, 256)
        server = Server(Scheduler.SGLANG, 8, 8 * request + spare, 4096, page_tokens=256)
        return serving_figures(times, server, workload, 0).ttft_ms.p95

    for workload in (Workload(1024, 512, 8), Workload(3000, 300, 8)):
        prompt_ms = ttft_ms(workload, 100 * 256)
        assert ttft_ms(workload, 4 * 256) == pytest.approx(prompt_ms)
        assert ttft_ms(workload, 0) > 1.5 * prompt_ms
