"""Models that no family entry describes: what their headers tell, what is assumed, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from family_configs import FP8
from sparse_checkpoint import write_checkpoint, write_shard

from placer.errors import BadInputError
from placer.model.headers import read_headers
from placer.model.inspect import inspect_document
from placer.model.module import StoredTensor
from placer.model.spec import ModelSpec, read_model

KNOWN: dict[str, Any] = {
    "architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 4,
    "first_k_dense_replace": 1,
    "hidden_size": 128,
    "intermediate_size": 256,
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "use_qk_norm": True,
    "vocab_size": 512,
    "max_position_embeddings": 1024,
}
UNKNOWN = {"architectures": ["NovelForCausalLM"], "model_type": "novel"}


def renamed(folder: Path, config: dict[str, Any], **changes: Any) -> Path:
    """The checkpoint of ``config`` under an architecture that nobody knows."""
    write_checkpoint(folder, config)
    (folder / "config.json").write_text(json.dumps({**config, **UNKNOWN, **changes}))
    return folder


def read(folder: Path, config: dict[str, Any] = KNOWN, **changes: Any) -> ModelSpec:
    return read_model(renamed(folder, config, **changes))


@pytest.mark.parametrize("quantization", [None, FP8], ids=["bf16", "fp8"])
def test_headers_tell_what_a_family_would(tmp_path: Path, quantization: dict[str, Any] | None) -> None:
    config = {**KNOWN, "quantization_config": quantization}
    unknown = read(tmp_path / "unknown", config)
    known = read_model(write_checkpoint(tmp_path / "known", config))
    for name in ("moe_layers", "num_layers", "experts", "top_k", "hidden_size", "expert_intermediate_size"):
        assert getattr(unknown, name) == getattr(known, name)
    assert unknown.checkpoint_expert_bytes == known.checkpoint_expert_bytes
    assert unknown.parameters == known.parameters
    for tp in (1, 2):
        assert unknown.weights_bytes_per_gpu(tp) == known.weights_bytes_per_gpu(tp)
        assert unknown.kv_bytes_per_token_per_gpu(tp, "fp8") == known.kv_bytes_per_token_per_gpu(tp, "fp8")
    assert "mismatch" not in unknown.provenance


def test_what_is_assumed_is_said(tmp_path: Path) -> None:
    document = inspect_document(read(tmp_path), 1)
    assert document["architecture"] == "NovelForCausalLM"
    assumed = document["provenance"]["assumed"]
    assert "no entry for novel" in assumed
    assert "keys and values of every token in every layer" in assumed
    # Widths that only the checkpoint has: fields of other families are not looked for.
    assert document["expert_intermediate_size"] == 64


def test_a_known_family_assumes_nothing(tmp_path: Path) -> None:
    assert "assumed" not in read_model(write_checkpoint(tmp_path, KNOWN)).provenance


def test_experts_fused_into_one_tensor(tmp_path: Path) -> None:
    folder = renamed(tmp_path, KNOWN)
    kept = [tensor for tensor in read_headers(folder) if ".mlp.experts." not in tensor.name]
    for layer in (1, 2, 3):
        at = f"model.layers.{layer}.mlp.experts"
        kept.append(StoredTensor(f"{at}.gate_up_proj", "BF16", (8, 128, 128)))
        kept.append(StoredTensor(f"{at}.down_proj", "BF16", (8, 128, 64)))
    (folder / "model.safetensors.index.json").unlink()
    write_shard(folder / "model-00001-of-00001.safetensors", kept)
    spec = read_model(folder)
    assert (spec.experts, spec.expert_intermediate_size) == (8, 64)
    assert spec.checkpoint_expert_bytes == 3 * 128 * 64 * 2


def test_without_headers_it_is_refused(tmp_path: Path) -> None:
    folder = renamed(tmp_path, KNOWN)
    with pytest.raises(BadInputError, match="cannot interpret model_type 'novel'"):
        read_model(folder / "config.json")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"num_hidden_layers": None, "num_experts_per_tok": None},
            "num_hidden_layers, num_experts_per_tok or",
        ),
        ({"vocab_size": None}, "vocab_size"),
        ({"kv_lora_rank": 512}, "caches cannot be known: no rule for kv_lora_rank"),
        ({"linear_attn_config": {"num_heads": 2}}, "linear_attn_config"),
        ({"layer_types": ["full_attention", "sliding_attention"] * 2}, "layer_types"),
        ({"num_key_value_heads": 4}, "layers 0, 1, 2, 3 cache cannot be known"),
        ({"head_dim": None}, None),
        ({"head_dim": 64}, "head_dim 64"),
        ({"num_hidden_layers": 6}, "layers 4, 5 cache cannot be known"),
        ({"n_routed_experts": 16}, "counts 16 experts, the checkpoint holds 8"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"hidden_size": 96, "head_dim": 32}, "is not three matrices"),
    ],
)
def test_what_cannot_be_known_is_named(tmp_path: Path, changes: dict[str, Any], named: str | None) -> None:
    folder = renamed(tmp_path, KNOWN, **changes)
    if named is None:
        # 128 / 4 heads is what the checkpoint holds.
        assert read_model(folder).kv_bytes_per_token_per_gpu(1, "bf16") == 4 * 2 * 2 * 32 * 2
        return
    with pytest.raises(BadInputError, match=named) as caught:
        read_model(folder)
    assert caught.value.hint


def test_a_dense_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = renamed(tmp_path, KNOWN)
    kept = [tensor for tensor in read_headers(folder) if ".experts." not in tensor.name]
    (folder / "model.safetensors.index.json").unlink()
    write_shard(folder / "model-00001-of-00001.safetensors", kept)
    with pytest.raises(BadInputError, match="no tensor of the checkpoint looks like a routed expert"):
        read_model(folder)
