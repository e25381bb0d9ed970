"""Heads, widths and entries of published models' attention."""

import pytest
from shared_data import SHARED_DATA, needs_shared_data

from placer.model.spec import read_model
from placer.profiler.attention_layers import AttentionLayers, attention_layers


def layers_of(name: str) -> tuple[AttentionLayers, ...]:
    return attention_layers(read_model(SHARED_DATA / "model_configs" / f"{name}.json"))


@needs_shared_data
def test_grouped_heads() -> None:
    (layers,) = layers_of("Qwen3-30B-A3B")
    assert (layers.kind, layers.layers, layers.query_heads, layers.kv_heads) == ("grouped", 48, 32, 4)
    # Two operations per value of 128 + 128, 32 heads, 48 layers; a quarter of the heads on each of four GPUs.
    assert layers.pair_flops(1) == 2 * 48 * 32 * 256
    assert layers.pair_flops(4) == layers.pair_flops(1) // 4
    # More GPUs than KV heads: every GPU holds one.
    assert layers.kv_heads_per_gpu(8) == 1


@needs_shared_data
def test_a_window_bounds_what_is_seen() -> None:
    full, sliding = layers_of("gpt-oss-120b")
    assert (full.window_tokens, sliding.window_tokens) == (None, 128)
    assert full.entries(1000) == 1000
    assert sliding.entries(1000) == 128
    assert sliding.entries(50) == 50


@needs_shared_data
def test_a_latent_vector_is_whole_heads_for_a_chunk() -> None:
    (layers,) = layers_of("DeepSeek-V3")
    assert (layers.kind, layers.key_width, layers.value_width, layers.cached_width) == (
        "latent",
        192,
        128,
        576,
    )
    assert layers.kv_heads_per_gpu(8) == 1
    assert layers.query_heads_per_gpu(8) == 16


@needs_shared_data
def test_an_indexer_scores_all_and_selects_some() -> None:
    core, index = layers_of("DeepSeek-V3.2")
    assert core.entries(100_000) == 2048
    assert (index.kind, index.query_heads, index.key_width, index.value_width) == ("other", 64, 128, 0)
    assert index.entries(100_000) == 100_000
    # Every GPU scores with all heads.
    assert index.pair_flops(8) == index.pair_flops(1)


@needs_shared_data
def test_compressed_entries_stand_for_several_tokens() -> None:
    by_ratio = {
        (each.window_tokens, each.tokens_per_entry, each.value_width): each
        for each in layers_of("DeepSeek-V4-Flash")
    }
    assert by_ratio[None, 128, 512].entries(6400) == 50
    assert by_ratio[None, 4, 512].entries(400) == 100
    assert by_ratio[None, 4, 512].entries(100_000) == 512
    assert by_ratio[128, 1, 512].entries(100_000) == 128


@needs_shared_data
@pytest.mark.parametrize("path", sorted((SHARED_DATA / "model_configs").glob("*.json")), ids=lambda p: p.stem)
def test_every_published_model_attends_in_every_cached_layer(path: object) -> None:
    model = read_model(str(path))
    found = attention_layers(model)
    assert all(min(each.layers, each.query_heads, each.key_width) >= 1 for each in found)
    assert sum(each.bf16_bytes > 0 for each in found) == len(model.cache)
