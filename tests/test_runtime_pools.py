"""What sglang-kt 0.7.2 allocates by an exported config.yaml is what the plan's ledger counts, to the byte."""

import json
from typing import Any

import pytest
import yaml
from family_configs import (
    DEEPSEEK_V3_2,
    DEEPSEEK_V4_FLASH,
    LLAMA_4_SCOUT,
    MIMO_V2_FLASH,
    QWEN3_5_122B,
    QWEN3_NEXT_80B,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planned import planned
from sglang_kt_pools import allocated
from test_model import DEEPSEEK_V3, GPT_OSS_20B, QWEN3_30B

from placer.exports.kt_flags import render_config, server_flags
from placer.model.spec import ModelSpec, read_model
from placer.parallelism import Parallelism
from placer.placement import PlacementDocument

pytestmark = pytest.mark.runtime

GIB = 2**30
MODELS: dict[str, dict[str, Any]] = {
    "one kind of layers": QWEN3_30B,
    "a latent": DEEPSEEK_V3,
    "a latent and an indexer": DEEPSEEK_V3_2,
    "windows": GPT_OSS_20B,
    "windows of other heads": MIMO_V2_FLASH,
    "chunked attention": LLAMA_4_SCOUT,
    "recurrent states": QWEN3_NEXT_80B,
    "recurrent states of a nested config": QWEN3_5_122B,
    "compressed entries": DEEPSEEK_V4_FLASH,
}
DRAFTING = ("a latent", "recurrent states", "recurrent states of a nested config", "compressed entries")


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelSpec]:
    read = {}
    for name, config in MODELS.items():
        folder = tmp_path_factory.mktemp("model")
        (folder / "config.json").write_text(json.dumps(config))
        read[name] = read_model(folder)
    return read


def by_the_runtime(
    patch: pytest.MonkeyPatch, model: ModelSpec, document: PlacementDocument
) -> dict[str, int]:
    """The pools that the runtime makes of what the export writes."""
    assert document.mem_fraction_static is not None
    flags = server_flags(
        document,
        model.config,
        ratio=0.0,
        mem_fraction_static=document.mem_fraction_static,
        model_path=None,
        kt_weight_path=None,
    )
    ledger = document.hbm.ledger
    free = document.hbm.budget_bytes_per_gpu - ledger["free_memory_loss"]
    held = sum(
        ledger[name]
        for name in (
            "hot_experts",
            "repacking",
            "attention",
            "router",
            "shared_experts",
            "dense",
            "embedding",
        )
    )
    held += ledger["norms"] + ledger["other"]
    return allocated(
        patch,
        model.config,
        yaml.safe_load(render_config(flags)),
        tp=document.tp,
        total_gib=free / GIB,
        free_gib=(free - held) / GIB,
    )


def check(patch: pytest.MonkeyPatch, model: ModelSpec, document: PlacementDocument) -> None:
    made = by_the_runtime(patch, model, document)
    assert made["tokens"] == document.kv.tokens
    assert made["requests"] == document.kv.max_running_requests
    for line in ("kv_pool", "request_state"):
        assert made[line] == document.hbm.ledger[line], line
    speculation = document.kv.speculation
    # The ledger counts what drafting adds to the table beside the draft layer.
    drafts = document.kv.max_running_requests * speculation.draft_tokens * 4 if speculation else 0
    assert made["request_table"] == document.hbm.ledger["request_table"] + drafts


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tp", [1, 4])
def test_the_runtime_allocates_the_ledger(
    monkeypatch: pytest.MonkeyPatch, specs: dict[str, ModelSpec], name: str, tp: int
) -> None:
    check(monkeypatch, specs[name], planned(specs[name], parallel=Parallelism(tp)))


@pytest.mark.parametrize("name", DRAFTING)
def test_the_runtime_allocates_the_ledger_when_it_drafts(
    monkeypatch: pytest.MonkeyPatch, specs: dict[str, ModelSpec], name: str
) -> None:
    document = planned(specs[name], speculative=True)
    check(monkeypatch, specs[name], document)
    assert document.hbm.ledger["mtp"] > 0


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(MODELS)),
    running=st.integers(1, 40),
    request_tokens=st.integers(3, 40_000),
    pages=st.integers(1, 32),
    dtype=st.sampled_from(["bf16", "fp8"]),
    min_kv_tokens=st.integers(0, 200_000),
)
def test_any_settings_are_allocated_as_planned(
    monkeypatch: pytest.MonkeyPatch,
    specs: dict[str, ModelSpec],
    name: str,
    running: int,
    request_tokens: int,
    pages: int,
    dtype: str,
    min_kv_tokens: int,
) -> None:
    document = planned(
        specs[name],
        running=running,
        request_tokens=request_tokens,
        chunk_tokens=256 * pages,
        kv_dtype="fp8" if name == "compressed entries" else dtype,
        min_kv_tokens=min_kv_tokens,
        budget_bytes=4000 * GIB,
    )
    assert document.kv.tokens >= max(min_kv_tokens, running * request_tokens)
    check(monkeypatch, specs[name], document)
