"""ModelSpec: shapes and bytes of known models, and what a reader refuses."""

import csv
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from placer.errors import BadInputError
from placer.model.inspect import inspect_document
from placer.model.spec import ModelSpec, read_model
from shared_data import SHARED_DATA, needs_shared_data

QWEN3_30B: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 61,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_nextn_predict_layers": 1,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
GPT_OSS_20B: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "attention_bias": True,
    "num_hidden_layers": 24,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "sliding_window": 128,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "head_dim": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "quantization_config": {"quant_method": "mxfp4"},
}
QWEN3_CODER_480B: dict[str, Any] = {
    **QWEN3_30B,
    "num_hidden_layers": 62,
    "hidden_size": 6144,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "num_experts": 160,
    "moe_intermediate_size": 2560,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def model(tmp_path: Path, config: dict[str, Any]) -> ModelSpec:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return read_model(tmp_path)


# Published figures: parameter counts, bytes of one expert, KV bytes per token.
@pytest.mark.parametrize(
    ("config", "moe_layers", "total", "fp8", "rawint4", "kv_bf16", "state"),
    [
        (QWEN3_30B, 48, 30_532_122_624, 4_719_744, 2_949_120, 98_304, 0),
        (DEEPSEEK_V3, 58, 671_026_419_200, 44_050_944, 27_525_120, 70_272, 0),
        (GPT_OSS_20B, 24, 20_914_757_184, 24_889_548, 15_552_000, 24_576, 3 * 2**20),
        (QWEN3_CODER_480B, 62, 480_154_875_392, 47_197_440, 29_491_200, 253_952, 0),
    ],
    ids=["qwen3-30b", "deepseek-v3", "gpt-oss-20b", "qwen3-coder-480b"],
)
def test_known_models(
    tmp_path: Path,
    config: dict[str, Any],
    moe_layers: int,
    total: int,
    fp8: int,
    rawint4: int,
    kv_bf16: int,
    state: int,
) -> None:
    spec = model(tmp_path, config)
    assert len(spec.moe_layers) == moe_layers
    assert spec.parameters["total"] == total
    assert spec.expert_bytes("fp8_block") == fp8
    assert spec.expert_bytes("rawint4") == rawint4
    assert spec.kv_bytes_per_token_per_gpu(1, "bf16") == kv_bf16
    assert spec.kv_bytes_per_token_per_gpu(1, "fp8") == kv_bf16 // 2
    assert spec.state_bytes_per_request_per_gpu(1) == state


def test_deepseek_v3_holds_what_its_checkpoint_says(tmp_path: Path) -> None:
    # The published element counts by type, less the F32 block scales.
    elements = 680_571_043_840 + 41_555_600 + 3_918_786_560
    scales = 41_555_600 - 59 * 256
    spec = model(tmp_path, DEEPSEEK_V3)
    assert spec.moe_layers == tuple(range(3, 61))
    assert spec.parameters["total"] + spec.parameters["mtp"] == elements - scales


def test_mla_kv_is_not_divided_by_tp_and_grouped_query_kv_is(tmp_path: Path) -> None:
    deepseek = model(tmp_path, DEEPSEEK_V3)
    assert deepseek.kv_bytes_per_token_per_gpu(8, "bf16") == 61 * (512 + 64) * 2
    qwen = model(tmp_path, QWEN3_30B)
    assert qwen.kv_bytes_per_token_per_gpu(4, "bf16") == 98_304 // 4
    # Beyond the four KV heads every GPU keeps one.
    assert qwen.kv_bytes_per_token_per_gpu(8, "bf16") == 98_304 // 4


def test_weights_of_a_coder_480b_gpu_at_tp_4(tmp_path: Path) -> None:
    weights = {name: size / 2**30 for name, size in model(tmp_path, QWEN3_CODER_480B).weights_bytes_per_gpu(4).items()}
    assert weights["attention"] == pytest.approx(2.36, abs=0.005)
    assert weights["embedding"] == pytest.approx(0.87, abs=0.005)
    assert weights["router"] == pytest.approx(0.11, abs=0.005)


def test_weights_of_a_qwen3_30b_server_with_32_hot_experts_per_layer(tmp_path: Path) -> None:
    # A public log of sglang-kt with bf16 experts on one H100 reports 16.41 GiB.
    spec = model(tmp_path, QWEN3_30B)
    weights = sum(spec.weights_bytes_per_gpu(1).values()) + 48 * 32 * spec.expert_bytes("bf16")
    assert weights / 2**30 == pytest.approx(16.41, rel=0.005)


def test_fp8_blocks_limit_tp(tmp_path: Path) -> None:
    spec = model(tmp_path, QWEN3_CODER_480B)
    assert spec.fp8_tp_problem(4) is None
    problem = spec.fp8_tp_problem(8)
    assert problem is not None
    assert "320" in problem
    assert "tp 1, 2, 4, 5, 10 would work" in problem
    # Widths that no block divides are padded, on one GPU only.
    assert model(tmp_path, GPT_OSS_20B).fp8_tp_problem(1) is None
    assert model(tmp_path, GPT_OSS_20B).fp8_tp_problem(2) is not None


def test_tp_must_divide_the_heads(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="32 attention heads"):
        model(tmp_path, QWEN3_30B).weights_bytes_per_gpu(3)


def test_qwen_layers_follow_the_sparse_step(tmp_path: Path) -> None:
    spec = model(tmp_path, {**QWEN3_30B, "num_hidden_layers": 8, "decoder_sparse_step": 2, "mlp_only_layers": [3]})
    assert spec.moe_layers == (1, 5, 7)


def test_the_inspect_document_names_its_origin(tmp_path: Path) -> None:
    document = inspect_document(model(tmp_path, QWEN3_30B), 1)
    assert document["expert_bytes"] == {"checkpoint": 9_437_184, "gpu": 4_719_744, "cpu": 2_949_120}
    assert document["provenance"]["sizes"] == "computed from config.json (no safetensors headers)"
    json.dumps(document, allow_nan=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "LlamaForCausalLM"),
        ({"architectures": None}, "architectures"),
        ({"num_experts": None}, "num_experts"),
        ({"num_experts": "many"}, "num_experts"),
        ({"num_experts": -1}, "num_experts"),
        ({"num_experts": 10**30}, "num_experts"),
        ({"num_experts_per_tok": 500}, "exceeds"),
        ({"mlp_only_layers": list(range(48))}, "no layer has routed experts"),
        ({"mlp_only_layers": 3}, "mlp_only_layers"),
        ({"quantization_config": {"quant_method": "gguf"}}, "gguf"),
        ({"quantization_config": []}, None),
        ({"quantization_config": 7}, "quantization_config"),
    ],
)
def test_a_config_that_cannot_be_interpreted(tmp_path: Path, change: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert model(tmp_path, {**QWEN3_30B, **change}).checkpoint_format == "bf16"
        return
    with pytest.raises(BadInputError, match=message):
        model(tmp_path, {**QWEN3_30B, **change})


@pytest.mark.parametrize("text", ["", "{", "[]", "NaN", '{"hidden_size": NaN}', "[" * 100_000, "\xff"])
def test_a_config_that_is_not_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(BadInputError):
        read_model(tmp_path)


def test_a_missing_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="config.json"):
        read_model(tmp_path)
    with pytest.raises(BadInputError):
        read_model(tmp_path / "nowhere")


TINY: dict[str, Any] = {
    **QWEN3_30B,
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 4,
    "vocab_size": 64,
}


def write_shard(path: Path, tensors: dict[str, list[int]], *, item_bytes: int = 2, cut: int = 0) -> None:
    """A safetensors file of zeros with the given shapes; ``cut`` bytes are missing at its end."""
    header, offset = {}, 0
    for name, shape in tensors.items():
        size = item_bytes
        for width in shape:
            size *= width
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    path.write_bytes((struct.pack("<Q", len(text)) + text + bytes(offset))[: 8 + len(text) + offset - cut])


def expert_tensors(layers: int = 2, experts: int = 2) -> dict[str, list[int]]:
    return {
        f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight": [8, 4]
        for layer in range(layers)
        for expert in range(experts)
        for part in ("gate", "up", "down")
    }


def test_headers_are_measured(tmp_path: Path) -> None:
    write_shard(tmp_path / "model.safetensors", {**expert_tensors(), "model.layers.0.mlp.gate.weight": [2, 8]})
    spec = model(tmp_path, TINY)
    assert spec.checkpoint_expert_bytes == 3 * 8 * 4 * 2
    assert spec.provenance["sizes"] == "safetensors headers of 1 file(s)"
    assert "mismatch" not in spec.provenance


def test_headers_that_differ_from_the_formula_are_reported(tmp_path: Path) -> None:
    write_shard(tmp_path / "model.safetensors", expert_tensors(), item_bytes=1)
    spec = model(tmp_path, TINY)
    assert spec.checkpoint_expert_bytes == 3 * 8 * 4
    assert "96 bytes in the headers, 192 by the formula" in spec.provenance["mismatch"]


def test_fused_experts_are_divided(tmp_path: Path) -> None:
    fused = {
        f"model.layers.{layer}.mlp.experts.{name}": shape
        for layer in range(2)
        for name, shape in (("gate_up_proj", [2, 8, 8]), ("down_proj", [2, 4, 8]))
    }
    write_shard(tmp_path / "model.safetensors", fused)
    assert model(tmp_path, TINY).checkpoint_expert_bytes == (8 * 8 + 4 * 8) * 2


def test_shared_experts_and_drafting_layers_are_not_routed_experts(tmp_path: Path) -> None:
    others = {
        "model.layers.0.mlp.shared_experts.gate_proj.weight": [8, 4],
        "model.layers.2.mlp.experts.0.gate_proj.weight": [8, 4],
        "model.layers.2.mlp.experts.0.up_proj.weight": [8, 4],
        "model.layers.2.mlp.experts.0.down_proj.weight": [8, 4],
        "model.layers.2.mlp.experts.1.gate_proj.weight": [8, 4],
        "model.layers.2.mlp.experts.1.up_proj.weight": [8, 4],
        "model.layers.2.mlp.experts.1.down_proj.weight": [8, 4],
    }
    write_shard(tmp_path / "model.safetensors", {**expert_tensors(), **others})
    assert model(tmp_path, TINY).moe_layers == (0, 1)


def test_an_incomplete_checkpoint_is_refused(tmp_path: Path) -> None:
    write_shard(tmp_path / "model.safetensors", expert_tensors(layers=1))
    with pytest.raises(BadInputError, match="in 1 layers, config.json says 2 in 2"):
        model(tmp_path, TINY)
    short = expert_tensors()
    del short["model.layers.1.mlp.experts.1.up_proj.weight"]
    write_shard(tmp_path / "model.safetensors", short)
    with pytest.raises(BadInputError, match="experts differ"):
        model(tmp_path, TINY)


def test_a_truncated_shard_is_refused(tmp_path: Path) -> None:
    write_shard(tmp_path / "model.safetensors", expert_tensors(), cut=10)
    with pytest.raises(BadInputError, match="truncated"):
        model(tmp_path, TINY)


def test_a_missing_shard_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "one.safetensors"}}))
    with pytest.raises(BadInputError, match="one.safetensors is missing"):
        model(tmp_path, TINY)


def test_an_index_cannot_point_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "../other/model.safetensors"}})
    )
    with pytest.raises(BadInputError, match="outside its folder"):
        model(tmp_path, TINY)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01",
        struct.pack("<Q", 10**15) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 4) + b"\xff\xfe\xfd\xfc",
        struct.pack("<Q", 9) + b'{"a": 77}',
        struct.pack("<Q", 50_000) + b"[" * 50_000,
    ],
)
def test_hostile_headers_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(BadInputError):
        model(tmp_path, TINY)


def test_overlapping_tensors_are_refused(tmp_path: Path) -> None:
    entry = {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}
    text = json.dumps({"a": entry, "b": entry}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    with pytest.raises(BadInputError, match="overlap"):
        model(tmp_path, TINY)


def shared_rows() -> list[dict[str, str]]:
    if not SHARED_DATA.is_dir():
        return []
    known = ("qwen3_moe", "gpt_oss", "deepseek_v3", "kimi_k2", "olmoe", "mixtral", "phimoe", "minimax_m2", "glm4_moe")
    with (SHARED_DATA / "models.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["model_type"] in known]


@needs_shared_data
@pytest.mark.parametrize("row", shared_rows(), ids=lambda row: row["model"])
def test_every_known_model_of_the_table(row: dict[str, str]) -> None:
    spec = read_model(SHARED_DATA / "model_configs" / f"{row['model']}.json")
    figures = {
        "L": spec.num_layers,
        "n_moe_layers": len(spec.moe_layers),
        "E": spec.experts,
        "top_k": spec.top_k,
        "expert_bytes_ckpt": spec.checkpoint_expert_bytes,
        "expert_bytes_bf16": spec.expert_bytes("bf16"),
        "expert_bytes_gpu_fp8": spec.expert_bytes("fp8_block"),
        "expert_bytes_cpu_amxint4_2numa": spec.expert_bytes("amxint4_2numa"),
        "expert_bytes_cpu_kt_rawint4_g32": spec.expert_bytes("rawint4"),
        "expert_bytes_cpu_kt_fp8": spec.expert_bytes("kt_fp8"),
        "kv_bytes_tok_bf16": spec.kv_bytes_per_token_per_gpu(1, "bf16"),
        "kv_bytes_tok_fp8": spec.kv_bytes_per_token_per_gpu(1, "fp8"),
        "state_bytes_per_req": spec.state_bytes_per_request_per_gpu(1),
        "params_total": spec.parameters["total"],
        "params_routed": spec.parameters["routed"],
        "params_active": spec.parameters["active"],
    }
    assert figures == {name: int(row[name]) for name in figures}
