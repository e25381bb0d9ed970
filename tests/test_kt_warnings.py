"""Every warning of an sglang-kt export, each provoked by a plan or model that deserves it."""

import json
from pathlib import Path
from typing import Any

import pytest
from kt_export import CONFIG, plan
from placements import placement, placement_dict
from shared_data import SHARED_DATA, needs_shared_data

from placer.errors import BadInputError
from placer.exports.kt_architectures import SPLIT_ARCHITECTURES, UNRECORDED_ARCHITECTURES
from placer.exports.kt_selection import kt_layout
from placer.exports.kt_warnings import mla_promise, warnings
from placer.exports.sglang_kt import export_sglang_kt
from placer.placement import PlacementDocument

HOT = {1: [2, 0], 2: [1], 3: [1, 3, 0, 2]}
MLA = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}


def said(document: PlacementDocument, **changes: Any) -> tuple[str, ...]:
    config = CONFIG | changes
    return warnings(document, config, kt_layout(config))


def test_a_plan_without_peculiarities_has_no_warning() -> None:
    assert said(plan(hot=HOT)) == ()


@pytest.mark.parametrize(
    ("document", "changes", "text"),
    [
        (plan(), {}, "some layers have no expert on the GPU: fine with block-FP8 weights, but Marlin"),
        (
            placement({1: [0], 3: [2, 1]}, layers=[1, 3], experts=4),
            {"first_k_dense_replace": 0, "decoder_sparse_step": 2},
            "the runtime counts 4 MoE layers, the model has 2",
        ),
        (plan(hot=HOT), {"quantization_config": None}, "not of a block-FP8 checkpoint"),
        (plan(hot=HOT), {"quantization_config": {"quant_method": "fp8"}}, "not of a block-FP8 checkpoint"),
        (plan(hot=HOT), MLA, "promises 3.0 times the KV tokens that fit"),
        (
            plan(hot=HOT),
            {"num_hash_layers": 2, "first_k_dense_replace": 3},
            "the first 2 layers are hash layers",
        ),
        (plan(hot=HOT), {"swiglu_limit": 10.0}, "clamps its experts' activations (swiglu_limit 10)"),
        (plan(hot=HOT), {"swiglu_alpha": 1.702}, "clamps its experts' activations (swiglu_alpha 1.702)"),
        (plan(hot=HOT, cpu_method="AMXINT4"), {}, "AMXINT4 rounds weights to 4 bits"),
        (
            plan(hot=HOT, runtime={"scheduler": "sglang", "deferred_experts": 2, "skip_idle_cold": False}),
            {},
            "the plan defers 2 selections of each token",
        ),
        (
            plan(hot=HOT, runtime={"scheduler": "sglang", "deferred_experts": 0, "skip_idle_cold": True}),
            {},
            "this one calls it in every layer",
        ),
        (
            plan(hot=HOT, runtime={"scheduler": "vllm", "deferred_experts": 0, "skip_idle_cold": False}),
            {},
            "predicted for vLLM's scheduler, and sglang-kt runs SGLang's: solve with --scheduler sglang",
        ),
        (plan(hot=HOT), {"architectures": ["MixtralForCausalLM"]}, "cannot record MixtralForCausalLM"),
        (plan(hot=HOT), {"model_type": "deepseek_v4"}, "cannot record DeepSeek-V4"),
    ],
)
def test_each_warning_is_given_and_printed(
    tmp_path: Path, document: PlacementDocument, changes: dict[str, Any], text: str
) -> None:
    found = said(document, **changes)
    assert len(found) == 1
    assert text in found[0]
    result = export_sglang_kt(document, tmp_path / "out", config=CONFIG | changes)
    assert result.notes == found
    assert f"- {found[0]}" in (tmp_path / "out" / "README.md").read_text()


def test_a_draft_is_warned_of() -> None:
    document = placement_dict(HOT, layers=[1, 2, 3], experts=4)
    document["kv"]["speculation"] = {"steps": 3, "branches": 1, "draft_tokens": 4}
    document["hbm"]["ledger"] |= {"mtp": 6, "unused": 4}
    found = said(PlacementDocument.model_validate(document))
    assert ["keeps KT off for drafts" in note for note in found] == [True]


def test_the_promise_of_the_runtimes_estimate_by_hand() -> None:
    # 512 + 64 values are stored, 128 + 64 are counted.
    assert mla_promise(MLA) == pytest.approx(3.0)
    # With an indexer of 128 bytes and a scale of four: 1152 + 132 over 384 + 132.
    assert mla_promise(MLA | {"index_head_dim": 128}) == pytest.approx(2.488, abs=1e-3)
    assert mla_promise(MLA | {"qk_nope_head_dim": 512}) is None
    assert mla_promise({"num_attention_heads": 8}) is None


def test_no_record_script_is_written_where_recording_fails(tmp_path: Path) -> None:
    result = export_sglang_kt(
        plan(), tmp_path / "out", config=CONFIG | {"architectures": ["OlmoeForCausalLM"]}
    )
    assert "record.sh" not in result.files
    assert "record.sh" not in (tmp_path / "out" / "README.md").read_text().partition("## Notes")[0]
    config = CONFIG | {"architectures": ["OlmoeForCausalLM"]}
    with pytest.raises(BadInputError, match="cannot record OlmoeForCausalLM"):
        export_sglang_kt(plan(), tmp_path / "out", config=config, record=True)


def test_what_cannot_be_recorded_can_be_split() -> None:
    assert UNRECORDED_ARCHITECTURES < SPLIT_ARCHITECTURES


@needs_shared_data
def test_every_published_model_can_be_split() -> None:
    for path in sorted((SHARED_DATA / "model_configs").glob("*.json")):
        architecture = json.loads(path.read_text())["architectures"][0]
        assert architecture in SPLIT_ARCHITECTURES, path.name
