"""Checkpoints: sizes come from safetensors headers, disagreements are told, broken files are refused."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from small_traces import token_trace

from placer.errors import BadInputError
from placer.model.headers import MAX_HEADER_BYTES, read_header, read_headers
from placer.model.module import StoredTensor
from placer.model.spec import ModelSpec, read_model
from placer.profiler.trace.file import write_trace

Tensors = dict[str, torch.Tensor]

TINY_QWEN: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "vocab_size": 128,
    "max_position_embeddings": 256,
}


def bf16(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16)


def fp8(name: str, rows: int, columns: int, scale: torch.dtype) -> Tensors:
    blocks = (-(-rows // 128), -(-columns // 128))
    return {
        name: torch.zeros((rows, columns), dtype=torch.float8_e4m3fn),
        f"{name}_scale_inv": torch.zeros(blocks, dtype=scale),
    }


def tiny_qwen(*, scale: torch.dtype | None = None) -> Tensors:
    """The tensors of `TINY_QWEN`; in block FP8 with scales of type ``scale`` where given."""

    def linear(name: str, rows: int, columns: int) -> Tensors:
        return {name: bf16(rows, columns)} if scale is None else fp8(name, rows, columns, scale)

    tensors = {
        "model.embed_tokens.weight": bf16(128, 64),
        "model.norm.weight": bf16(64),
        "lm_head.weight": bf16(128, 64),
    }
    for layer in ("model.layers.0", "model.layers.1"):
        tensors |= linear(f"{layer}.self_attn.q_proj.weight", 128, 64)
        tensors |= linear(f"{layer}.self_attn.k_proj.weight", 64, 64)
        tensors |= linear(f"{layer}.self_attn.v_proj.weight", 64, 64)
        tensors |= linear(f"{layer}.self_attn.o_proj.weight", 64, 128)
        tensors |= {f"{layer}.self_attn.{name}_norm.weight": bf16(32) for name in ("q", "k")}
        tensors |= {f"{layer}.{name}_layernorm.weight": bf16(64) for name in ("input", "post_attention")}
        tensors[f"{layer}.mlp.gate.weight"] = bf16(4, 64)
        for expert in range(4):
            at = f"{layer}.mlp.experts.{expert}"
            tensors |= linear(f"{at}.gate_proj.weight", 32, 64)
            tensors |= linear(f"{at}.up_proj.weight", 32, 64)
            tensors |= linear(f"{at}.down_proj.weight", 64, 32)
    return tensors


TINY_DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 2,
    "first_k_dense_replace": 1,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "num_nextn_predict_layers": 1,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def tiny_deepseek() -> Tensors:
    """Layer 0 dense, layer 1 MoE, layer 2 the MTP layer."""

    def linear(name: str, rows: int, columns: int) -> Tensors:
        return fp8(f"{name}.weight", rows, columns, torch.float32)

    def mlp(at: str, width: int) -> Tensors:
        gate_up = linear(f"{at}.gate_proj", width, 64) | linear(f"{at}.up_proj", width, 64)
        return gate_up | linear(f"{at}.down_proj", 64, width)

    tensors = {
        "model.embed_tokens.weight": bf16(128, 64),
        "model.norm.weight": bf16(64),
        "lm_head.weight": bf16(128, 64),
        "model.layers.2.eh_proj.weight": bf16(64, 128),
        "model.layers.2.embed_tokens.weight": bf16(128, 64),
        "model.layers.2.shared_head.head.weight": bf16(128, 64),
        **{f"model.layers.2.{name}.weight": bf16(64) for name in ("enorm", "hnorm", "shared_head.norm")},
    }
    for layer in ("model.layers.0", "model.layers.1", "model.layers.2"):
        attention = f"{layer}.self_attn"
        tensors |= linear(f"{attention}.q_a_proj", 48, 64) | linear(f"{attention}.q_b_proj", 4 * 24, 48)
        tensors |= linear(f"{attention}.kv_a_proj_with_mqa", 40, 64)
        tensors |= linear(f"{attention}.kv_b_proj", 4 * 32, 32) | linear(f"{attention}.o_proj", 64, 64)
        tensors[f"{attention}.q_a_layernorm.weight"] = bf16(48)
        tensors[f"{attention}.kv_a_layernorm.weight"] = bf16(32)
        tensors |= {f"{layer}.{name}_layernorm.weight": bf16(64) for name in ("input", "post_attention")}
    tensors |= mlp("model.layers.0.mlp", 96)
    for layer in ("model.layers.1", "model.layers.2"):
        tensors[f"{layer}.mlp.gate.weight"] = bf16(4, 64)
        tensors[f"{layer}.mlp.gate.e_score_correction_bias"] = torch.zeros(4)
        tensors |= mlp(f"{layer}.mlp.shared_experts", 32)
        for expert in range(4):
            tensors |= mlp(f"{layer}.mlp.experts.{expert}", 32)
    return tensors


TINY_GPT_OSS: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "attention_bias": True,
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 16,
    "hidden_size": 64,
    "intermediate_size": 32,
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "quantization_config": {"quant_method": "mxfp4"},
}


def tiny_gpt_oss() -> Tensors:
    tensors = {
        "model.embed_tokens.weight": bf16(128, 64),
        "model.norm.weight": bf16(64),
        "lm_head.weight": bf16(128, 64),
    }
    for layer in ("model.layers.0", "model.layers.1"):
        for name, rows, columns in (("q", 64, 64), ("k", 32, 64), ("v", 32, 64), ("o", 64, 64)):
            tensors[f"{layer}.self_attn.{name}_proj.weight"] = bf16(rows, columns)
            tensors[f"{layer}.self_attn.{name}_proj.bias"] = bf16(rows)
        tensors[f"{layer}.self_attn.sinks"] = bf16(4)
        tensors |= {f"{layer}.{name}_layernorm.weight": bf16(64) for name in ("input", "post_attention")}
        tensors |= {f"{layer}.mlp.router.weight": bf16(4, 64), f"{layer}.mlp.router.bias": bf16(4)}
        for name, rows, columns in (("gate_up_proj", 64, 64), ("down_proj", 64, 32)):
            at = f"{layer}.mlp.experts.{name}"
            tensors[f"{at}_blocks"] = torch.zeros((4, rows, columns // 32, 16), dtype=torch.uint8)
            tensors[f"{at}_scales"] = torch.zeros((4, rows, columns // 32), dtype=torch.uint8)
            tensors[f"{at}_bias"] = bf16(4, rows)
    return tensors


INT4 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4,
                "type": "int",
                "strategy": "group",
                "group_size": 32,
                "symmetric": True,
            },
        }
    },
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*mlp\\.gate$"],
}


def tiny_int4_qwen() -> Tensors:
    """`TINY_QWEN` with experts packed as compressed-tensors INT4."""
    tensors: Tensors = {}
    for name, tensor in tiny_qwen().items():
        if ".experts." not in name:
            tensors[name] = tensor
            continue
        rows, columns = tensor.shape
        tensors[f"{name}_packed"] = torch.zeros((rows, columns // 8), dtype=torch.int32)
        tensors[f"{name}_scale"] = bf16(rows, columns // 32)
        tensors[f"{name}_shape"] = torch.zeros(2, dtype=torch.int32)
    return tensors


def checkpoint(folder: Path, config: dict[str, Any], tensors: Tensors, *, shards: int = 1) -> Path:
    """A checkpoint directory, with an index when there are several shards."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for part in range(shards):
        shard = f"model-{part + 1:05d}-of-{shards:05d}.safetensors"
        held = names[part::shards]
        save_file({name: tensors[name] for name in held}, folder / shard)
        weight_map |= dict.fromkeys(held, shard)
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def by_formula(folder: Path) -> ModelSpec:
    return read_model(folder / "config.json")


FP8_QWEN = {**TINY_QWEN, "quantization_config": TINY_DEEPSEEK["quantization_config"]}


@pytest.mark.parametrize(
    ("config", "tensors"),
    [
        (TINY_QWEN, tiny_qwen()),
        (FP8_QWEN, tiny_qwen(scale=torch.bfloat16)),
        (TINY_DEEPSEEK, tiny_deepseek()),
        (TINY_GPT_OSS, tiny_gpt_oss()),
        ({**TINY_QWEN, "quantization_config": INT4}, tiny_int4_qwen()),
    ],
    ids=["bf16", "fp8", "mla-fp8-mtp", "mxfp4-fused", "int4"],
)
def test_headers_and_formulas_agree_on_whole_checkpoints(
    tmp_path: Path, config: dict[str, Any], tensors: Tensors
) -> None:
    folder = checkpoint(tmp_path / "model", config, tensors, shards=3)
    stored, computed = read_model(folder), by_formula(folder)
    assert stored.provenance["sizes"] == "safetensors headers"
    assert "mismatch" not in stored.provenance
    assert stored.checkpoint_expert_bytes == computed.checkpoint_expert_bytes
    assert stored.parameters == computed.parameters
    for tp in (1, 2, 4):
        assert stored.weights_bytes_per_gpu(tp) == computed.weights_bytes_per_gpu(tp)


def test_sizes_by_hand(tmp_path: Path) -> None:
    spec = read_model(checkpoint(tmp_path / "model", TINY_QWEN, tiny_qwen()))
    assert spec.checkpoint_expert_bytes == 3 * 32 * 64 * 2
    weights = spec.weights_bytes_per_gpu(2)
    # Halves of q (128 rows), k and v (64 rows each) and o (128 columns), in two layers.
    assert weights["attention"] == 2 * (64 + 32 + 32 + 64) * 64 * 2
    assert weights["router"] == 2 * 4 * 64 * 2
    assert weights["embedding"] == 2 * 64 * 64 * 2
    assert weights["norms"] == (2 * (2 * 64 + 2 * 32) + 64) * 2
    assert spec.parameters["routed"] == 2 * 4 * 3 * 32 * 64


def test_fused_experts_are_divided_by_their_number(tmp_path: Path) -> None:
    spec = read_model(checkpoint(tmp_path / "model", TINY_GPT_OSS, tiny_gpt_oss()))
    weights = 64 * 64 + 64 * 32
    assert spec.checkpoint_expert_bytes == weights // 2 + weights // 32 + 2 * (64 + 64)


def test_headers_win_and_the_mismatch_is_told(tmp_path: Path) -> None:
    # Qwen's published FP8 scales are BF16; here they are F32: 6 bytes more per expert.
    folder = checkpoint(tmp_path / "model", FP8_QWEN, tiny_qwen(scale=torch.float32))
    spec = read_model(folder)
    assert spec.checkpoint_expert_bytes == by_formula(folder).checkpoint_expert_bytes + 3 * 2
    assert "expert: 6,156 bytes in headers, 6,150 computed" in spec.provenance["mismatch"]
    assert "attention: " in spec.provenance["mismatch"]
    # In GPU memory scales are F32 either way.
    assert spec.weights_bytes_per_gpu(1) == by_formula(folder).weights_bytes_per_gpu(1)


def test_tensors_without_a_rule_count_whole_and_are_told(tmp_path: Path) -> None:
    extra = {"visual.patch_embed.weight": bf16(8, 4), "model.layers.0.mlp.adapter.weight": bf16(6)}
    spec = read_model(checkpoint(tmp_path / "model", TINY_QWEN, tiny_qwen() | extra))
    assert spec.weights_bytes_per_gpu(4)["other"] == (8 * 4 + 6) * 2
    assert "2 stored tensors without a rule" in spec.provenance["mismatch"]
    assert "visual.patch_embed.weight" in spec.provenance["mismatch"]


def test_absent_modules_are_told(tmp_path: Path) -> None:
    tensors = tiny_deepseek()
    shipped = {name: tensor for name, tensor in tensors.items() if ".layers.2." not in name}
    spec = read_model(checkpoint(tmp_path / "model", TINY_DEEPSEEK, shipped))
    assert spec.parameters["mtp"] == spec.weights_bytes_per_gpu(1)["mtp"] == 0
    assert "mtp: 0 bytes in headers" in spec.provenance["mismatch"]
    assert "modules not stored (model.layers.2." in spec.provenance["mismatch"]


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
def test_prefixes_of_multimodal_wrappers(tmp_path: Path, prefix: str) -> None:
    tensors = {name.replace("model.", prefix, 1): tensor for name, tensor in tiny_qwen().items()}
    folder = checkpoint(tmp_path / "model", TINY_QWEN, tensors)
    assert "mismatch" not in read_model(folder).provenance
    assert read_model(folder).weights == by_formula(folder).weights


def test_a_float32_checkpoint_is_served_in_bf16(tmp_path: Path) -> None:
    tensors = {name: tensor.float() for name, tensor in tiny_qwen().items()}
    spec = read_model(checkpoint(tmp_path / "model", {**TINY_QWEN, "torch_dtype": "float32"}, tensors))
    assert spec.checkpoint_format == "f32"
    assert spec.checkpoint_expert_bytes == 3 * 32 * 64 * 4
    in_bf16 = read_model(checkpoint(tmp_path / "bf16", TINY_QWEN, tiny_qwen()))
    assert spec.weights_bytes_per_gpu(2) == in_bf16.weights_bytes_per_gpu(2)


def without(tensors: Tensors, *names: str) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if name not in names}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            without(tiny_qwen(), "model.layers.1.mlp.experts.3.up_proj.weight"),
            "expert 3 of layer 1 holds 4,096 parameters in the checkpoint, 6,144",
        ),
        ({name: t for name, t in tiny_qwen().items() if ".experts." not in name}, "8 of 8 differ"),
        (tiny_qwen() | {"model.layers.1.mlp.experts.4.up_proj.weight": bf16(2)}, "a layer has 4 experts"),
        (tiny_qwen() | {"model.layers.0.mlp.experts.up_proj": bf16(5, 2)}, "a layer has 4 experts"),
    ],
)
def test_experts_that_contradict_the_config_are_refused(
    tmp_path: Path, tensors: Tensors, message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        read_model(checkpoint(tmp_path / "model", TINY_QWEN, tensors))


def test_experts_of_a_dense_layer_are_refused(tmp_path: Path) -> None:
    config = {**TINY_QWEN, "mlp_only_layers": [0], "intermediate_size": 96}
    with pytest.raises(BadInputError, match="layer 0 is not a MoE layer"):
        read_model(checkpoint(tmp_path / "model", config, tiny_qwen()))


def shard(path: Path, header: object, *, data_bytes: int = 0, length: int | None = None) -> Path:
    """A safetensors file with ``header`` as it is, and ``data_bytes`` zeros."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + bytes(data_bytes))
    return path


def entry(begin: int, end: int, shape: list[Any], dtype: str = "BF16") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_a_header_reads_as_names_types_and_shapes(tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, "b": entry(4, 12, [2, 2]), "a": entry(0, 4, [], "F32")}
    path = shard(tmp_path / "a.safetensors", header, data_bytes=12)
    assert read_header(path) == [StoredTensor("b", "BF16", (2, 2)), StoredTensor("a", "F32", ())]


@pytest.mark.parametrize(
    ("header", "data_bytes", "message"),
    [
        ({"a": entry(0, 4, [2])}, 3, "cut short"),
        ({"a": entry(0, 4, [2]), "b": entry(2, 6, [2])}, 6, "overlaps"),
        ({"a": entry(0, 4, [2]), "b": entry(6, 10, [2])}, 10, "gap"),
        ({"a": entry(0, 4, [3])}, 4, "does not take 4 bytes"),
        ({"a": entry(4, 0, [2])}, 4, "does not take -4 bytes"),
        ({"a": entry(0, 4, [-2])}, 4, "no known dtype"),
        ({"a": entry(0, 4, [2.0])}, 4, "no known dtype"),
        ({"a": entry(0, 4, [True, 2])}, 4, "no known dtype"),
        ({"a": entry(0, 4, [2], "BF17")}, 4, "no known dtype"),
        ({"a": entry(0, 4, [10**40])}, 4, "no known dtype"),
        ({"a": entry(0, 0, [0] * 10_000)}, 0, "no known dtype"),
        ({"a" * 1000: entry(0, 4, [2])}, 4, "no known dtype"),
        ({"a": 7}, 4, "no known dtype"),
        ({"a": {"dtype": ["BF16"], "shape": [2], "data_offsets": [0, 4]}}, 4, "no known dtype"),
        ([1, 2], 0, "not a JSON object"),
        (b'{"a": 1, "a": 2}', 0, "twice"),
        (b"{" * 50, 0, "not valid JSON"),
        (b"[" * 100_000, 0, "not valid JSON"),
        (b"\xff\xfe\xfd", 0, "not valid JSON"),
    ],
)
def test_a_hostile_header_is_refused(tmp_path: Path, header: object, data_bytes: int, message: str) -> None:
    with pytest.raises(BadInputError, match=message) as caught:
        read_header(shard(tmp_path / "a.safetensors", header, data_bytes=data_bytes))
    assert caught.value.hint


@pytest.mark.parametrize("length", [0, 1, 3, 2**40, 2**63, 2**64 - 1])
def test_a_header_length_beyond_the_file_is_refused(tmp_path: Path, length: int) -> None:
    with pytest.raises(BadInputError, match="does not fit"):
        read_header(shard(tmp_path / "a.safetensors", {}, length=length))


def test_an_absurd_header_is_not_read(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.safetensors", {}, length=MAX_HEADER_BYTES + 1)
    with path.open("r+b") as file:
        file.truncate(2 * MAX_HEADER_BYTES)
    with pytest.raises(BadInputError, match="is above"):
        read_header(path)


def test_files_that_are_no_safetensors(tmp_path: Path) -> None:
    pointer = tmp_path / "lfs.safetensors"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(BadInputError, match="Git LFS pointer"):
        read_header(pointer)
    (tmp_path / "empty.safetensors").touch()
    with pytest.raises(BadInputError, match="does not fit"):
        read_header(tmp_path / "empty.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(BadInputError, match="not a file"):
        read_header(tmp_path / "folder.safetensors")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_to_a_header_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    header = {"a": entry(0, 4, [2]), "b": entry(4, 8, [1], "F32")}
    whole = bytearray(shard(tmp_path / "a.safetensors", header, data_bytes=8).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "a.safetensors").write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        tensors = read_header(tmp_path / "a.safetensors")
    except BadInputError:
        return
    assert len(tensors) <= 2


@pytest.mark.parametrize(
    "target",
    [
        "../a.safetensors",
        "/etc/a.safetensors",
        "sub/a.safetensors",
        "a.bin",
        "",
        "a\x00.safetensors",
        ["a"],
        None,
    ],
)
def test_an_index_cannot_leave_its_directory(tmp_path: Path, target: object) -> None:
    shard(tmp_path / "a.safetensors", {})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": target}}))
    with pytest.raises(BadInputError, match="weight_map names"):
        list(read_headers(tmp_path))


@pytest.mark.parametrize("index", ["{}", "[]", '{"weight_map": []}', '{"weight_map": {}}', "{", ""])
def test_a_broken_index_is_refused(tmp_path: Path, index: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(BadInputError):
        list(read_headers(tmp_path))


def test_missing_shards_are_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", TINY_QWEN, tiny_qwen(), shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(BadInputError, match=r"model-00002-of-00003\.safetensors is missing"):
        read_model(folder)
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(BadInputError, match="part 00002 of 00003 is missing"):
        read_model(folder)


def test_an_index_and_its_shards_must_agree(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", TINY_QWEN, tiny_qwen(), shards=2)
    index = folder / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    index.write_text(json.dumps({"weight_map": weight_map | {"model.ghost": min(weight_map.values())}}))
    with pytest.raises(BadInputError, match=r"lacks 'model\.ghost'"):
        read_model(folder)
    # Files outside the index are not part of the checkpoint.
    index.write_text(json.dumps({"weight_map": weight_map}))
    save_file(tiny_qwen(), folder / "consolidated.safetensors")
    assert "mismatch" not in read_model(folder).provenance
    index.unlink()
    with pytest.raises(BadInputError, match="both hold"):
        read_model(folder)


def test_a_directory_with_only_a_config_is_computed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY_QWEN))
    assert read_model(tmp_path).provenance["sizes"] == "computed from config.json"


def test_an_unknown_quantization_outside_config_json_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", TINY_QWEN, tiny_qwen())
    (folder / "hf_quant_config.json").write_text("{}")
    with pytest.raises(BadInputError, match="quant_algo"):
        read_model(folder)


def test_a_trace_beside_a_checkpoint_is_none_of_its_files(tmp_path: Path) -> None:
    """`placer trace record` and `trace import` write one where they are called, if nothing else is asked for."""
    (tmp_path / "config.json").write_text(json.dumps(TINY_QWEN))
    by_formula = read_model(tmp_path)
    trace = token_trace(np.tile(np.arange(2), (3, 2, 1)), experts=4)
    write_trace(trace, tmp_path / "trace.safetensors")
    assert read_model(tmp_path) == by_formula
    save_file(tiny_qwen(), tmp_path / "model.safetensors")
    assert {tensor.name for tensor in read_headers(tmp_path)} == set(tiny_qwen())
