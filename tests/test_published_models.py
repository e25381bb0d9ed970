"""The figures of every published model that the shared table lists, from hand-written and from real configs."""

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import family_configs as configs
import pytest
from published_figures import FIGURES, Figures
from shared_data import SHARED_DATA, needs_shared_data
from test_hbm import QWEN3_235B
from test_model import (
    DEEPSEEK_V3,
    FP8,
    GLM_4_5_AIR,
    GPT_OSS_20B,
    KIMI_K2,
    MINIMAX_M2,
    MIXTRAL,
    OLMOE,
    PHI_3_5_MOE,
    QWEN3_30B,
    QWEN3_CODER_480B,
)

from placer.model.blueprint import blueprint
from placer.model.config import read_config
from placer.model.dtype import elements_bytes
from placer.model.module import Module
from placer.model.spec import ModelSpec, read_model
from placer.model.storage import stored_tensors

GLM_4_5: dict[str, Any] = {
    **GLM_4_5_AIR,
    "num_hidden_layers": 92,
    "first_k_dense_replace": 3,
    "hidden_size": 5120,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "n_routed_experts": 160,
    "use_qk_norm": True,
}
GPT_OSS_120B: dict[str, Any] = {
    **GPT_OSS_20B,
    "num_hidden_layers": 36,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "num_local_experts": 128,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "DeepSeek-R1": DEEPSEEK_V3,
    "DeepSeek-V3.2": configs.DEEPSEEK_V3_2,
    "DeepSeek-V3": DEEPSEEK_V3,
    "DeepSeek-V4-Flash": configs.DEEPSEEK_V4_FLASH,
    "DeepSeek-V4-Pro": configs.DEEPSEEK_V4_PRO,
    "GLM-4.5-Air": GLM_4_5_AIR,
    "GLM-4.5": GLM_4_5,
    "GLM-4.6": GLM_4_5,
    "GLM-5-FP8": {**configs.GLM_5, "quantization_config": FP8},
    "GLM-5.1": configs.GLM_5,
    "GLM-5": configs.GLM_5,
    "Kimi-K2-Instruct": KIMI_K2,
    "MiniMax-M2": MINIMAX_M2,
    "Mixtral-8x7B-v0.1": MIXTRAL,
    "OLMoE-1B-7B": OLMOE,
    "Phi-3.5-MoE-instruct": PHI_3_5_MOE,
    "Qwen3-235B-A22B-FP8": {**QWEN3_235B, "quantization_config": FP8},
    "Qwen3-235B-A22B": QWEN3_235B,
    "Qwen3-30B-A3B-FP8": {**QWEN3_30B, "quantization_config": FP8},
    "Qwen3-30B-A3B": QWEN3_30B,
    "Qwen3-Coder-480B-A35B-Instruct-FP8": QWEN3_CODER_480B,
    "Qwen3-Coder-480B-A35B-Instruct": {**QWEN3_CODER_480B, "quantization_config": None},
    "Qwen3-Next-80B-A3B-Instruct": configs.QWEN3_NEXT_80B,
    "Qwen3.5-122B-A10B": configs.QWEN3_5_122B,
    "Ring-1T": configs.RING_1T,
    "gpt-oss-120b": GPT_OSS_120B,
    "gpt-oss-20b": GPT_OSS_20B,
}


def figures(spec: ModelSpec) -> Figures:
    return Figures(
        layers=spec.num_layers,
        moe_layers=len(spec.moe_layers),
        experts=spec.experts,
        top_k=spec.top_k,
        shared_width=spec.shared_intermediate_size,
        checkpoint_bytes=spec.checkpoint_expert_bytes,
        fp8_bytes=spec.expert_bytes("fp8_block"),
        mxfp4_bytes=spec.expert_bytes("mxfp4"),
        amxint4_2_nodes_bytes=spec.expert_bytes("amxint4", numa_nodes=2),
        rawint4_bytes=spec.expert_bytes("rawint4"),
        kt_fp8_bytes=spec.expert_bytes("kt_fp8"),
        kv_bf16_bytes=spec.kv_bytes_per_token_per_gpu(1, "bf16"),
        kv_fp8_bytes=spec.kv_bytes_per_token_per_gpu(1, "fp8"),
        state_bytes=spec.state_bytes_per_request_per_gpu(1),
        parameters=spec.parameters["total"],
        active_parameters=spec.parameters["active"],
    )


def shared_row(name: str) -> dict[str, str]:
    with (SHARED_DATA / "models.csv").open(encoding="utf-8") as file:
        return next(row for row in csv.DictReader(file) if row["model"] == name)


@pytest.mark.parametrize("name", FIGURES)
def test_the_fields_that_matter_give_the_figures(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    assert figures(read_model(tmp_path)) == FIGURES[name]


@needs_shared_data
@pytest.mark.parametrize("name", FIGURES)
def test_the_real_config_gives_the_figures_and_the_shared_row(name: str) -> None:
    spec = read_model(SHARED_DATA / "model_configs" / f"{name}.json")
    assert figures(spec) == FIGURES[name]
    row = shared_row(name)
    routed, others = spec.parameters["routed"], spec.parameters["total"] - spec.parameters["routed"]
    assert (spec.moe_layers[0], spec.hidden_size, spec.expert_hidden_size, routed, others) == tuple(
        int(row[column])
        for column in ("first_moe", "hidden", "expert_in_dim", "params_routed", "params_nonexpert")
    )


@needs_shared_data
def test_no_row_of_the_shared_table_is_left_out() -> None:
    with (SHARED_DATA / "models.csv").open(encoding="utf-8") as file:
        assert {row["model"] for row in csv.DictReader(file)} == set(FIGURES)


@needs_shared_data
@pytest.mark.parametrize("name", FIGURES)
def test_mtp_layers_hold_vectors_that_the_shared_table_leaves_out(name: str) -> None:
    # The published element counts of DeepSeek-V3, below, include the router bias [E] of the MTP layer,
    # which the table does not count. Qwen's has one norm more, DeepSeek-V4's its sinks, norms and the mixers
    # of its residual streams.
    spec = read_model(SHARED_DATA / "model_configs" / f"{name}.json")
    E, H = spec.experts, spec.hidden_size
    mixers = 2 * (24 * 4 * H + 24 + 3) + 4 * 4 * H + 4 + 1
    left_out = {"deepseek_v3": E, "deepseek_v32": E, "glm4_moe": E, "glm_moe_dsa": E, "qwen3_next": H}
    left_out |= {"qwen3_5_moe_text": H}
    if spec.model_type == "deepseek_v4":
        left_out["deepseek_v4"] = E + mixers + spec.query_heads + int(spec.config["q_lora_rank"]) + 512
    counted = int(shared_row(name)["params_mtp_in_ckpt"])
    assert spec.parameters["mtp"] == counted + (left_out.get(spec.model_type, 0) if counted else 0)


def stored_elements(folder: Path, config: dict[str, Any]) -> Counter[str]:
    """Elements of every type in the checkpoint of ``config``, MTP layers and scales included."""
    (folder / "config.json").write_text(json.dumps(config))
    plan = blueprint(read_config(folder / "config.json"))
    counts, experts = plan.counts, plan.family.experts
    routed = len(counts.moe_layers) * counts.experts
    elements = Counter({"BF16": routed * plan.expert_bias_parameters})
    for module in plan.modules:
        for tensor in stored_tensors(module, plan.quantization, plan.naming) if module.stored else ():
            elements[tensor.dtype] += tensor.elements
    H, width = counts.expert_hidden_size, counts.expert_intermediate_size
    at = f"model.layers.{counts.moe_layers[0]}.{experts.at}.0"
    for name, shape in zip(experts.matrices, ((width, H), (width, H), (H, width)), strict=True):
        matrix = Module(f"{at}.{name}", "other", shape, linear=True)
        for tensor in stored_tensors(matrix, plan.quantization, plan.naming):
            elements[tensor.dtype] += routed * tensor.elements
    return elements


def test_checkpoints_hold_the_elements_that_their_publishers_count(tmp_path: Path) -> None:
    # Hugging Face's counts by type, DeepSeek's with 59 router biases of 256 as F32.
    deepseek = stored_elements(tmp_path, DEEPSEEK_V3)
    assert deepseek == {"F8_E4M3": 680_571_043_840, "F32": 41_555_600, "BF16": 3_918_786_560}
    # MiniMax-M2.5 with scales: no MTP layer, though config.json declares three modules.
    assert stored_elements(tmp_path, MINIMAX_M2).total() == 228_703_644_928
    assert stored_elements(tmp_path, GPT_OSS_20B)["BF16"] == 1_804_459_584
    # The index of Qwen3-30B-A3B gives its total size.
    qwen = stored_elements(tmp_path, QWEN3_30B)
    assert sum(elements_bytes(count, dtype) for dtype, count in qwen.items()) == 61_064_245_248
