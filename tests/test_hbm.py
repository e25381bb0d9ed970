"""The HBM ledger: every byte has a line, and the lines close."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_model import QWEN3_CODER_480B
from tiny_model import tiny_model

from placer.hbm import (
    ServerSettings,
    activation_bytes,
    expert_share_bytes,
    free_memory_loss_bytes,
    hbm_ledger,
    mem_fraction_static,
)
from placer.model.spec import ModelSpec, read_model
from placer.units import GIB


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    folder = tmp_path_factory.mktemp("coder")
    (folder / "config.json").write_text(json.dumps(QWEN3_CODER_480B))
    return read_model(folder)


def test_the_figures_of_a_480b_model_on_four_h100(coder: ModelSpec) -> None:
    # Worked figures per GPU at tp 4 with 96 of 160 experts hot and 40,960 tokens.
    server = ServerSettings(64, 40_960, 8192, "bf16")
    ledger = hbm_ledger(coder, tp=4, budget_bytes=int(79.18 * GIB), settings=server, hot_experts=62 * 96)
    assert ledger.lines["hot_experts"] / GIB == pytest.approx(65.41, abs=0.01)
    assert ledger.weights_bytes / GIB == pytest.approx(68.75, abs=0.01)
    assert ledger.lines["kv_pool"] / GIB == pytest.approx(2.42, abs=0.01)
    free = int(79.18 * GIB) - free_memory_loss_bytes(4)
    assert (free - ledger.weights_bytes - ledger.kv_bytes) / GIB == pytest.approx(5.8, abs=0.05)
    assert ledger.unused_bytes > 0
    assert mem_fraction_static(ledger, tp=4, device_bytes=int(79.18 * GIB)) == 0.925


def test_the_same_server_cannot_hold_131072_tokens(coder: ModelSpec) -> None:
    server = ServerSettings(64, 131_072, 8192, "bf16")
    ledger = hbm_ledger(coder, tp=4, budget_bytes=int(79.18 * GIB), settings=server, hot_experts=62 * 96)
    assert ledger.lines["kv_pool"] / GIB == pytest.approx(7.75, abs=0.01)
    assert ledger.unused_bytes < 0


def test_activations_by_hand(tiny: ModelSpec) -> None:
    # 10 tokens, top-2, I 128, H 256: 10·2·(3·128 + 256)·2 + 8·10·256·2.
    assert activation_bytes(tiny, 10, 1) == 25_600 + 40_960


def test_small_chunks_keep_the_reserve_floor(tiny: ModelSpec) -> None:
    server = ServerSettings(1, 16, 16, "bf16")
    lines = hbm_ledger(tiny, tp=1, budget_bytes=8 * GIB, settings=server, hot_experts=0).lines
    assert lines["activations"] + lines["cuda_graphs"] + lines["fragmentation"] == int(2.5 * GIB)


sizes = st.integers(min_value=1, max_value=64)


@settings(max_examples=60, deadline=None)
@given(
    running=sizes,
    tokens=st.integers(1, 100_000),
    chunk=st.integers(1, 8192),
    hot=st.integers(0, 32),
    budget=st.integers(1, 100 * GIB),
    tp=st.sampled_from([1, 2, 4]),
    dtype=st.sampled_from(["bf16", "fp8"]),
)
def test_lines_sum_to_the_budget(
    tiny: ModelSpec, running: int, tokens: int, chunk: int, hot: int, budget: int, tp: int, dtype: str
) -> None:
    server = ServerSettings(running, tokens, chunk, dtype)
    ledger = hbm_ledger(tiny, tp=tp, budget_bytes=budget, settings=server, hot_experts=hot)
    assert sum(ledger.lines.values()) == budget
    assert all(size >= 0 for name, size in ledger.lines.items() if name != "unused")
    assert ledger.lines["hot_experts"] == hot * expert_share_bytes(tiny, tp)


@settings(max_examples=40, deadline=None)
@given(tokens=st.integers(1, 10_000), more=st.integers(0, 10_000))
def test_more_context_never_leaves_more_room(tiny: ModelSpec, tokens: int, more: int) -> None:
    def unused(kv_tokens: int) -> int:
        server = ServerSettings(4, kv_tokens, 512, "bf16")
        return hbm_ledger(tiny, tp=1, budget_bytes=8 * GIB, settings=server, hot_experts=0).unused_bytes

    assert unused(tokens + more) <= unused(tokens)


def test_the_fraction_is_rounded_up(tmp_path: Path) -> None:
    tiny = tiny_model(tmp_path)
    server = ServerSettings(4, 4096, 512, "bf16")
    ledger = hbm_ledger(tiny, tp=1, budget_bytes=8 * GIB, settings=server, hot_experts=32)
    fraction = mem_fraction_static(ledger, tp=1, device_bytes=8 * GIB)
    free = 8 * GIB - free_memory_loss_bytes(1)
    # SGLang's pool is fraction · free − weights: at this fraction it holds the plan's KV, one step below not.
    assert fraction * free >= ledger.weights_bytes + ledger.kv_bytes
    assert (fraction - 0.001) * free < ledger.weights_bytes + ledger.kv_bytes
