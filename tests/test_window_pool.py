"""SGLang's two pools of a model with sliding windows: what its flags make, and the flags for what is needed."""

from pathlib import Path

import pytest
from family_configs import MIMO_V2_FLASH
from hypothesis import given
from hypothesis import strategies as st
from test_model import GPT_OSS_20B
from test_remedy import model_of

from placer.kv_pool import sglang_kv_plan, sglang_window_ratio
from placer.pool import Pool
from placer.window_pool import TwoPools, has_two_pools, window_ratio, window_tokens

# gpt-oss-20b in bf16: 12 layers that see everything and 12 with a window, 2,048 B a token in each.
GPT_OSS = {"full_bytes": 24_576, "full_layers": 12, "window_layer_bytes": 2_048, "window_layers": 12}


def test_the_flag_counts_as_if_every_layer_kept_every_token() -> None:
    # A quarter of the tokens in half of the bytes: 1,000 tokens' bytes hold 1,000 · 2 / 1.25.
    pools = TwoPools(**GPT_OSS, page_tokens=1, ratio=0.25)
    assert pools.tokens(1_000) == (1_600, 400)
    assert 1_600 * 24_576 + 400 * 24_576 == 1_000 * 2 * 24_576
    assert pools.pools(1_000) == (
        Pool("full", 1_600, 1_601, 24_576, 12),
        Pool("window", 400, 401, 24_576, 12),
    )


def test_at_a_ratio_of_one_the_flag_is_the_capacity() -> None:
    assert TwoPools(**GPT_OSS, page_tokens=1, ratio=1.0).tokens(40_960) == (40_960, 40_960)


def test_pools_are_whole_pages() -> None:
    assert TwoPools(**GPT_OSS, page_tokens=64, ratio=0.25).tokens(1_030) == (1_600, 384)


def test_a_model_of_windows_alone_has_one_pool() -> None:
    pools = TwoPools(0, 0, 2_048, 12, page_tokens=16, ratio=0.5)
    assert pools.tokens(100) == (0, 96)
    assert [pool.name for pool in pools.pools(100)] == ["window"]


@given(
    full=st.integers(1, 10**6),
    layer=st.integers(1, 10**5),
    layers=st.integers(1, 60),
    page=st.sampled_from([1, 16, 64]),
    millionths=st.integers(1, 10**6),
    tokens=st.integers(1, 10**7),
)
def test_the_least_flag_holds_the_tokens_and_one_page_less_does_not(
    full: int, layer: int, layers: int, page: int, millionths: int, tokens: int
) -> None:
    pools = TwoPools(full, 1, layer, layers, page, millionths / 10**6)
    flag = pools.least_flag(tokens)
    assert flag % page == 0
    assert pools.tokens(flag)[0] >= tokens
    assert flag == page or pools.tokens(flag - page)[0] < tokens
    # The flag never promises more bytes than it names, but for the page that every pool has to spare.
    spare = page * (full + layer * layers)
    assert sum(pool.total_bytes for pool in pools.pools(flag)) <= flag * pools.every_bytes + spare


def test_running_requests_keep_their_windows(tmp_path: Path) -> None:
    gpt_oss = model_of(tmp_path, GPT_OSS_20B)
    assert window_tokens(gpt_oss) == 128

    def ratio(**changes: int) -> float:
        given = {"tokens": 640_000, "running": 16, "request_tokens": 40_000, "chunk_tokens": 1_024}
        return window_ratio(gpt_oss, page_tokens=1, **{**given, **changes})

    # Each of 16 holds 3 · 128 + 1,024 + 2 tokens, and a chunk and a page are in flight: 23,585 of 640,000.
    assert ratio() == 0.036852
    # No request holds more than its own tokens.
    assert ratio(request_tokens=200) == pytest.approx((16 * 201 + 1_025) / 640_000, abs=1e-6)
    # No pool holds more than all tokens.
    assert ratio(tokens=10_000) == 1.0
    # A runtime that is told its own default cannot tell that it was told.
    assert ratio(tokens=23_585 * 10 // 8) != 0.8


def test_only_some_architectures_keep_a_share(tmp_path: Path) -> None:
    assert has_two_pools("GptOssForCausalLM")
    config = {**MIMO_V2_FLASH, "architectures": ["MiMoV2ForCausalLM"]}
    model = model_of(tmp_path, config)
    needs = {"tokens": 40_960, "running": 4, "request_tokens": 10_240, "chunk_tokens": 512}
    assert sglang_window_ratio(model, **needs) is None
    plan = sglang_kv_plan(model, tokens=40_960, ratio=None, attention_tp=1, kv_dtype="bf16")
    # Nine whole layers of 4 heads and 39 with a window of 8 heads, K 192 and V 128: all keep every token.
    assert plan.total_bytes == 40_961 * (9 * 4 + 39 * 8) * (192 + 128) * 2
    assert (plan.tokens, plan.max_total_tokens, plan.window_ratio) == (40_960, 40_960, None)


def test_a_window_costs_a_fraction_of_its_tokens(tmp_path: Path) -> None:
    mimo = model_of(tmp_path, MIMO_V2_FLASH)
    needs = {"tokens": 640_000, "running": 16, "request_tokens": 40_000, "chunk_tokens": 1_024}
    ratio = sglang_window_ratio(mimo, **needs)
    assert ratio is not None
    plan = sglang_kv_plan(mimo, tokens=640_000, ratio=ratio, attention_tp=1, kv_dtype="bf16")
    every = 640_001 * (9 * 4 + 39 * 8) * (192 + 128) * 2
    assert plan.tokens >= 640_000
    assert plan.total_bytes < 0.15 * every
