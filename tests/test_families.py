"""Model families: their published sizes, caches and states, and the names that their checkpoints use."""

import json
from pathlib import Path
from typing import Any

import family_configs as configs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sparse_checkpoint import write_checkpoint

from placer.errors import BadInputError
from placer.model.blueprint import Blueprint, blueprint
from placer.model.checkpoint import weigh_by_headers
from placer.model.config import read_config
from placer.model.headers import read_headers
from placer.model.inspect import inspect_document
from placer.model.module import WEIGHT_CLASSES, StoredTensor
from placer.model.spec import ModelSpec, read_model
from placer.model.storage import stored_tensors

MIB = 2**20
ALL_CONFIGS = {
    name: value for name, value in vars(configs).items() if isinstance(value, dict) and "model_type" in value
}


def read(folder: Path, config: dict[str, Any], **changes: Any) -> ModelSpec:
    """The model of ``config``; ``changes`` go where the language model's fields are."""
    return read_model(write(folder, config, **changes))


def write(folder: Path, config: dict[str, Any], **changes: Any) -> Path:
    if "text_config" in config:
        config = {**config, "text_config": {**config["text_config"], **changes}}
    else:
        config = {**config, **changes}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


# MoE layers, parameters without MTP, MTP parameters, stored bytes of an expert, KV bytes per token in bf16 and
# FP8, bytes of state per request.
@pytest.mark.parametrize(
    ("name", "layers", "parameters", "mtp", "stored", "bf16", "fp8", "state"),
    [
        ("QWEN3_NEXT_80B", 48, 79_674_391_296, 1_650_471_424, 6_291_456, 24_576, 12_288, 77_266_944),
        ("QWEN3_5_122B", 48, 122_111_526_912, 2_523_679_232, 18_874_368, 24_576, 12_288, 153_649_152),
        ("DEEPSEEK_V3_2", 58, 671_877_944_064, 13_477_385_728, 44_050_944, 78_324, 48_068, 0),
        ("DEEPSEEK_V4_FLASH", 43, 284_334_567_511, 6_610_048_891, 13_369_344, 6_880, 3_850, 15_495_168),
        ("DEEPSEEK_V4_PRO", 61, 1_572_999_528_803, 25_840_145_979, 35_094_528, 9_848, 5_511, 23_345_152),
        ("GLM_5", 75, 743_911_218_432, 11_856_086_016, 75_497_472, 100_152, 61_464, 0),
        ("GLM_5_2", 75, 743_377_019_904, 11_856_086_016, 75_497_472, 100_152, 61_464, 0),
        ("GLM_4_7_FLASH", 46, 29_943_393_920, 1_278_094_656, 18_874_368, 54_144, 27_072, 0),
        ("RING_1T", 76, 999_705_328_640, 0, 100_663_296, 327_680, 163_840, 0),
        ("LLAMA_4_MAVERICK", 24, 400_711_848_960, 0, 251_658_240, 49_152, 24_576, 1_207_959_552),
        ("LLAMA_4_SCOUT", 48, 107_769_861_120, 0, 251_658_240, 49_152, 24_576, 1_207_959_552),
        ("HUNYUAN_A13B", 32, 80_393_183_232, 0, 75_497_472, 131_072, 65_536, 0),
        ("ERNIE_4_5_300B", 51, 299_484_163_264, 0, 176_160_768, 221_184, 110_592, 0),
        ("ERNIE_4_5_21B", 27, 21_825_437_888, 0, 23_592_960, 57_344, 28_672, 0),
        ("STEP_3", 56, 316_294_538_240, 0, 220_200_960, 62_464, 31_232, 0),
        ("STEP_3_5_FLASH", 42, 196_956_130_368, 2_428_171_008, 31_457_280, 49_152, 24_576, 69_206_016),
        ("MIMO_V2_FLASH", 47, 308_778_780_864, 0, 25_171_968, 23_040, 11_520, 25_559_040),
        ("MINIMAX_M3", 57, 426_174_572_928, 0, 113_246_208, 137_472, 76_032, 0),
        ("KIMI_K2_5", 60, 1_026_408_232_448, 0, 24_772_632, 70_272, 35_136, 0),
        ("KIMI_LINEAR_48B", 26, 49_122_681_728, 0, 14_155_776, 8_064, 4_032, 43_417_600),
        ("KIMI_K3", 92, 2_779_481_795_168, 0, 17_547_264, 27_648, 13_824, 449_372_160),
    ],
)
def test_sizes(
    tmp_path: Path,
    name: str,
    layers: int,
    parameters: int,
    mtp: int,
    stored: int,
    bf16: int,
    fp8: int,
    state: int,
) -> None:
    spec = read(tmp_path, getattr(configs, name))
    assert len(spec.moe_layers) == layers
    assert spec.parameters["total"] == parameters
    assert spec.parameters["mtp"] == mtp
    assert spec.checkpoint_expert_bytes == stored
    assert spec.kv_bytes_per_token_per_gpu(1, "bf16") == bf16
    assert spec.kv_bytes_per_token_per_gpu(1, "fp8") == fp8
    assert spec.state_bytes_per_request_per_gpu(1) == state


def test_recurrent_states_by_hand_and_divided_by_tp(tmp_path: Path) -> None:
    # Qwen3.5-122B: 36 layers; 16 key heads and 64 value heads of 128, a convolution over 4 inputs.
    spec = read(tmp_path, configs.QWEN3_5_122B)
    convolution = (2 * 16 * 128 + 64 * 128) * 3 * 2
    matrices = 64 * 128 * 128 * 4
    assert spec.state_bytes_per_request_per_gpu(1) == 36 * (convolution + matrices)
    assert spec.state_bytes_per_request_per_gpu(4) == 36 * (convolution + matrices) // 4
    # Twelve layers cache 2 KV heads of 256; with more GPUs than heads, heads repeat.
    assert spec.kv_bytes_per_token_per_gpu(4, "bf16") == 12 * 2 * 256 * 2
    with pytest.raises(BadInputError, match="mamba_ssm_dtype"):
        read(tmp_path, configs.QWEN3_5_122B, mamba_ssm_dtype="int4")


def test_a_published_397b_hybrid_agrees_with_its_server_log(tmp_path: Path) -> None:
    # Qwen3.5-397B on two GPUs: 15,360 bytes per token, and states of 83 requests of 7.29 and 0.13 GiB.
    spec = read(
        tmp_path,
        configs.QWEN3_5_122B,
        num_hidden_layers=60,
        layer_types=[*["linear_attention"] * 3, "full_attention"] * 15,
        hidden_size=4096,
        num_experts=512,
        num_experts_per_tok=10,
    )
    assert spec.kv_bytes_per_token_per_gpu(2, "bf16") == 15_360
    gib = 83 * spec.state_bytes_per_request_per_gpu(2) / 2**30
    assert round(gib, 2) == round(7.295 + 0.128, 2)


def test_kimi_k3_keeps_428_mib_per_request(tmp_path: Path) -> None:
    spec = read(tmp_path, configs.KIMI_K3)
    assert spec.state_bytes_per_request_per_gpu(1) // MIB == 428
    assert spec.state_bytes_per_request_per_gpu(8) == spec.state_bytes_per_request_per_gpu(1) // 8
    # Experts work on 3,584 of the 7,168 wide hidden state.
    assert (spec.hidden_size, spec.expert_hidden_size) == (7168, 3584)
    assert spec.parameters["routed"] == 92 * 896 * 3 * 3584 * 3072 == 2_722_740_830_208


def test_the_compressed_cache_of_deepseek_v4_by_hand(tmp_path: Path) -> None:
    # 21 layers keep an entry per 4 tokens, with an index key; 20 an entry per 128. FP8 entries hold 448
    # values, 64 rotary ones in bf16 and 8 bytes of scales, index keys 128 values and a float32 scale.
    spec = read(tmp_path, configs.DEEPSEEK_V4_FLASH)
    entry = 448 + 2 * 64 + 8
    assert spec.kv_bytes_per_token_per_gpu(1, "fp8") == int(21 * (entry + 132) / 4 + 20 * entry / 128)
    assert spec.kv_bytes_per_token_per_gpu(1, "bf16") == 21 * (1024 + 256) / 4 + 20 * 1024 / 128
    # Windows of 43 layers and of the MTP layer; rings of 8 and of 128 float32 keys and scores.
    rings = 21 * 8 * 2 * 2 * (512 + 128) * 4 + 20 * 128 * 2 * 512 * 4
    assert spec.state_bytes_per_request_per_gpu(1) == 44 * 128 * entry + rings
    # Every GPU holds all of it.
    assert spec.kv_bytes_per_token_per_gpu(8, "fp8") == spec.kv_bytes_per_token_per_gpu(1, "fp8")
    assert spec.state_bytes_per_request_per_gpu(8) == spec.state_bytes_per_request_per_gpu(1)


def test_sparse_attention_caches_an_index_key_in_every_layer(tmp_path: Path) -> None:
    spec = read(tmp_path, configs.DEEPSEEK_V3_2)
    assert spec.kv_bytes_per_token_per_gpu(8, "bf16") == 61 * (2 * 576 + 132)
    assert spec.kv_bytes_per_token_per_gpu(8, "fp8") == 61 * (512 + 4 * 4 + 64 * 2 + 132)
    # GLM-5.2 stores an indexer in 21 of 78 layers.
    shared, own = (read(tmp_path, config).parameters["total"] for config in (configs.GLM_5_2, configs.GLM_5))
    indexer = 32 * 128 * 2048 + 128 * 6144 + 32 * 6144 + 2 * 128
    assert own - shared == 57 * indexer


def test_windows_with_heads_of_their_own(tmp_path: Path) -> None:
    # MiMo: 9 full layers of 4 KV heads, 39 sliding ones of 8; keys of 192, values of 128.
    spec = read(tmp_path, configs.MIMO_V2_FLASH)
    assert spec.kv_bytes_per_token_per_gpu(1, "bf16") == 9 * 4 * (192 + 128) * 2
    assert spec.state_bytes_per_request_per_gpu(1, "fp8") == 39 * 8 * (192 + 128) * 128
    assert spec.kv_bytes_per_token_per_gpu(8, "bf16") == 9 * (192 + 128) * 2
    assert spec.state_bytes_per_request_per_gpu(8, "fp8") == 39 * (192 + 128) * 128
    # Projections repeat like their heads: at tp 8 those of 4 heads are cut by 4, those of 8 by 8.
    plain = read(tmp_path, configs.MIMO_V2_FLASH, quantization_config=None)
    kv_8 = (9 * 1 + 39 * 1) * (192 + 128) * 4096 * 2
    query_and_out_8 = 48 * (192 + 128) * 64 * 4096 * 2 // 8
    sinks_8 = 39 * 64 * 2 // 8
    assert plain.weights_bytes_per_gpu(8)["attention"] == kv_8 + query_and_out_8 + sinks_8


def test_chunked_layers_keep_a_chunk(tmp_path: Path) -> None:
    spec = read(tmp_path, configs.LLAMA_4_MAVERICK)
    assert spec.moe_layers == tuple(range(1, 48, 2))
    assert spec.dense_intermediate_size == 16384
    assert spec.state_bytes_per_request_per_gpu(8) == 36 * 8192 * 2 * 128 * 2
    everywhere = read(tmp_path, configs.LLAMA_4_MAVERICK, layer_types=["full_attention"] * 48)
    assert everywhere.state_bytes_per_request_per_gpu(1) == 0


def test_packed_projections_are_cut_head_by_head(tmp_path: Path) -> None:
    # Ring: 64 query and 8 + 8 key and value heads of 128 in one matrix; at tp 16 one of each kind of KV head.
    spec = read(tmp_path, configs.RING_1T)
    for tp, held in ((1, 80), (8, 8 + 2), (16, 4 + 2)):
        out = 64 * 128 // tp
        assert spec.weights_bytes_per_gpu(tp)["attention"] == 80 * (held * 128 + out) * 8192 * 2


def test_low_rank_queries_are_whole_on_every_gpu(tmp_path: Path) -> None:
    spec = read(tmp_path, configs.STEP_3)
    whole, cut = (2048 + 2 * 256) * 7168, 64 * 256 * (2048 + 7168)
    assert spec.weights_bytes_per_gpu(4)["attention"] == 61 * (whole + cut // 4) * 2
    assert spec.kv_bytes_per_token_per_gpu(4, "bf16") == 61 * 2 * 256 * 2


def test_shared_experts(tmp_path: Path) -> None:
    for config, number, width in (
        (configs.QWEN3_NEXT_80B, 1, 512),
        (configs.LLAMA_4_SCOUT, 1, 8192),
        (configs.HUNYUAN_A13B, 1, 3072),
        (configs.ERNIE_4_5_21B, 2, 3072),
        (configs.ERNIE_4_5_300B, 0, 0),
        (configs.KIMI_K3, 2, 6144),
        (configs.STEP_3, 1, 5120),
    ):
        spec = read(tmp_path, config)
        assert (spec.shared_experts, spec.shared_intermediate_size) == (number, width)


def test_the_first_layers_of_deepseek_v4_route_by_token(tmp_path: Path) -> None:
    hashed = read(tmp_path, configs.DEEPSEEK_V4_FLASH).weights_bytes_per_gpu(1)["router"]
    scored = read(tmp_path, configs.DEEPSEEK_V4_FLASH, num_hash_layers=0).weights_bytes_per_gpu(1)["router"]
    assert hashed - scored == 3 * (129280 * 6 - 256) * 4


@pytest.mark.parametrize(
    ("config", "changes", "named"),
    [
        (configs.QWEN3_5_122B, {"layer_types": ["full_attention"]}, "layer_types"),
        (configs.QWEN3_5_122B, {"layer_types": ["mamba"] * 48}, "layer_types"),
        (configs.QWEN3_NEXT_80B, {"full_attention_interval": 0}, "full_attention_interval"),
        (configs.DEEPSEEK_V4_FLASH, {"compress_ratios": [4]}, "compress_ratios"),
        (configs.DEEPSEEK_V4_FLASH, {"compress_ratios": [8] * 44}, "compress_ratios"),
        (configs.DEEPSEEK_V4_FLASH, {"expert_dtype": "int3"}, "expert_dtype"),
        (configs.DEEPSEEK_V4_FLASH, {"o_groups": 7}, "o_groups"),
        (configs.GLM_5_2, {"indexer_types": ["half"] * 78}, "indexer_types"),
        (configs.GLM_5_2, {"indexer_types": None}, "index_topk_freq"),
        (configs.GLM_5_2, {"mlp_layer_types": ["sparse"]}, "mlp_layer_types"),
        (configs.HUNYUAN_A13B, {"moe_topk": [8, 4]}, "moe_topk"),
        (configs.HUNYUAN_A13B, {"num_shared_expert": [1, 2]}, "num_shared_expert"),
        (configs.HUNYUAN_A13B, {"use_cla": True}, "use_cla"),
        (configs.ERNIE_4_5_21B, {"moe_layer_interval": 0}, "moe_layer_interval"),
        (configs.STEP_3, {"moe_layers_enum": "4,x"}, "moe_layers_enum"),
        (configs.STEP_3, {"moe_layers_enum": [99]}, "moe_layers_enum"),
        (configs.STEP_3, {"num_attention_groups": 2}, "num_attention_groups"),
        (configs.MIMO_V2_FLASH, {"hybrid_layer_pattern": [2] * 48}, "hybrid_layer_pattern"),
        (configs.MIMO_V2_FLASH, {"swa_num_key_value_heads": None}, "swa_num_key_value_heads"),
        (configs.MINIMAX_M3, {"sparse_attention_config": 3}, "sparse_attention_config"),
        (configs.MINIMAX_M3, {"sparse_attention_config": {}}, "sparse_attention_freq"),
        (configs.KIMI_LINEAR_48B, {"linear_attn_config": {"kda_layers": [1]}}, "linear_attn_config"),
        (configs.LLAMA_4_SCOUT, {"moe_layers": [48]}, "moe_layers"),
    ],
)
def test_a_field_that_a_family_cannot_use_is_named(
    tmp_path: Path, config: dict[str, Any], changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadInputError, match=named) as caught:
        read(tmp_path, config, **changes)
    assert caught.value.hint


SMALL = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "max_position_embeddings": 256,
}
"""Widths that keep a checkpoint small; counts of layers, experts and heads stay a family's own."""


def small(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    if "text_config" in config:
        return {**config, "text_config": {**config["text_config"], **SMALL, **changes}}
    return {**config, **SMALL, **changes}


@pytest.mark.parametrize(
    ("config", "prefix"),
    [
        (small(configs.QWEN3_NEXT_80B, num_experts=4, num_experts_per_tok=2), ""),
        (small(configs.DEEPSEEK_V3_2, n_routed_experts=4, num_experts_per_tok=2), ""),
        (small(configs.GLM_5_2, n_routed_experts=4, num_experts_per_tok=2), ""),
        (small(configs.RING_1T, num_experts=4, num_experts_per_tok=2, num_nextn_predict_layers=1), ""),
        (small(configs.HUNYUAN_A13B, num_experts=4, moe_topk=2), ""),
        (
            small(configs.ERNIE_4_5_21B, head_dim=16, moe_num_experts=4, moe_k=2, num_nextn_predict_layers=1),
            "",
        ),
        (small(configs.MIMO_V2_FLASH, n_routed_experts=4, num_experts_per_tok=2), ""),
        (small(configs.KIMI_K2_5, n_routed_experts=4, num_experts_per_tok=2), "language_model."),
        (small(configs.KIMI_LINEAR_48B, num_experts=4, num_experts_per_token=2), ""),
        (small(configs.KIMI_K3, num_experts=4, num_experts_per_token=2), "language_model."),
        (
            small(configs.MINIMAX_M3, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2),
            "language_model.",
        ),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else None,
)
def test_a_checkpoint_is_measured_as_it_is_computed(
    tmp_path: Path, config: dict[str, Any], prefix: str
) -> None:
    folder = write_checkpoint(tmp_path / "model", config, shards=2, prefix=prefix)
    stored, computed = read_model(folder), read_model(folder / "config.json")
    assert stored.provenance["sizes"] == "safetensors headers"
    assert "mismatch" not in stored.provenance
    assert stored.weights == computed.weights
    assert stored.parameters == computed.parameters
    assert stored.checkpoint_expert_bytes == computed.checkpoint_expert_bytes


def test_the_names_of_a_deepseek_v4_layer(tmp_path: Path) -> None:
    plan = blueprint(read_config(write(tmp_path, configs.DEEPSEEK_V4_FLASH) / "config.json"))
    names = {
        tensor.name.removeprefix("model.layers.2.")
        for module in plan.modules
        for tensor in stored_tensors(module, plan.quantization, plan.naming)
        if module.name == "model.layers.2" or module.name.startswith("model.layers.2.")
    }
    quantised = ["attn.wq_a", "attn.wq_b", "attn.wkv", "attn.wo_a", "attn.wo_b", "attn.indexer.wq_b"]
    quantised += [f"ffn.shared_experts.{name}" for name in ("w1", "w2", "w3")]
    plain = ["attn_norm", "ffn_norm", "attn.q_norm", "attn.kv_norm", "attn.indexer.weights_proj", "ffn.gate"]
    plain += [f"{at}.{name}" for at in ("attn.compressor", "attn.indexer.compressor") for name in COMPRESSOR]
    bare = ["attn.attn_sink", "attn.compressor.ape", "attn.indexer.compressor.ape", "ffn.gate.tid2eid"]
    bare += [f"hc_{at}_{name}" for at in ("attn", "ffn") for name in ("fn", "base", "scale")]
    assert names == {
        *(f"{name}.{kind}" for name in quantised for kind in ("weight", "scale")),
        *(f"{name}.weight" for name in plain),
        *bare,
    }
    ends = {module.name for module in plan.modules if not module.name.startswith("model.layers.")}
    assert {"embed", "head", "model.norm", "hc_head_fn", "mtp.0.e_proj", "mtp.0.attn.wq_a"} <= ends


COMPRESSOR = ("wkv", "wgate", "norm")


def test_experts_fused_into_one_tensor_per_layer(tmp_path: Path) -> None:
    def qwen(plan: Blueprint, at: str) -> list[StoredTensor]:
        E, H, width = 4, 64, 32
        return [
            StoredTensor(f"{at}.gate_up_proj", "BF16", (E, 2 * width, H)),
            StoredTensor(f"{at}.down_proj", "BF16", (E, H, width)),
        ]

    def llama(plan: Blueprint, at: str) -> list[StoredTensor]:
        E, H, width = 4, 64, 96
        return [
            StoredTensor(f"{at}.gate_up_proj", "BF16", (E, H, 2 * width)),
            StoredTensor(f"{at}.down_proj", "BF16", (E, width, H)),
        ]

    def step(plan: Blueprint, at: str) -> list[StoredTensor]:
        shapes = {"gate_proj": (4, 32, 64), "up_proj": (4, 32, 64), "down_proj": (4, 64, 32)}
        return [StoredTensor(f"{at}.{name}.weight", "BF16", shape) for name, shape in shapes.items()]

    for name, config, fuse in (
        ("qwen", small(configs.QWEN3_5_122B, num_experts=4, num_experts_per_tok=2), qwen),
        ("llama", small(configs.LLAMA_4_MAVERICK, num_local_experts=4), llama),
        ("step", small(configs.STEP_3, moe_num_experts=4, moe_top_k=2), step),
    ):
        folder = write_checkpoint(tmp_path / name, config, fuse=fuse)
        stored, computed = read_model(folder), read_model(folder / "config.json")
        assert "mismatch" not in stored.provenance
        assert stored.checkpoint_expert_bytes == computed.checkpoint_expert_bytes
        assert stored.parameters == computed.parameters


def test_fused_experts_of_an_mtp_layer(tmp_path: Path) -> None:
    config = small(configs.QWEN3_5_122B, num_experts=4, num_experts_per_tok=2)
    folder = write_checkpoint(tmp_path / "apart", config)
    apart = read_model(folder).weights_bytes_per_gpu(2)["mtp"]
    fused = "mtp.layers.0.mlp.experts"
    tensors = [tensor for tensor in read_headers(folder) if not tensor.name.startswith(fused)]
    tensors.append(StoredTensor(f"{fused}.gate_up_proj", "BF16", (4, 64, 64)))
    tensors.append(StoredTensor(f"{fused}.down_proj", "BF16", (4, 64, 32)))

    weighed = weigh_by_headers(blueprint(read_config(folder / "config.json")), tensors)
    assert weighed.mismatches == ()
    assert sum(g.bytes_per_gpu(2, 2) for g in weighed.groups if g.weight_class == "mtp") == apart


@pytest.mark.parametrize("name", ALL_CONFIGS)
def test_gpus_together_hold_the_model_and_each_no_more_than_before(tmp_path: Path, name: str) -> None:
    spec = read(tmp_path, getattr(configs, name))
    for fewer, more in ((1, 2), (2, 4)):
        before, after = spec.weights_bytes_per_gpu(fewer), spec.weights_bytes_per_gpu(more)
        for weight_class in WEIGHT_CLASSES:
            assert after[weight_class] <= before[weight_class] <= 2 * after[weight_class]
        for dtype in ("bf16", "fp8"):
            before_kv = spec.kv_bytes_per_token_per_gpu(fewer, dtype)
            assert before_kv <= 2 * spec.kv_bytes_per_token_per_gpu(more, dtype) <= 2 * before_kv
            state = spec.state_bytes_per_request_per_gpu(fewer, dtype)
            assert state <= 2 * spec.state_bytes_per_request_per_gpu(more, dtype) <= 2 * state


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 5)
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_in_any_field_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    config = ALL_CONFIGS[data.draw(st.sampled_from(sorted(ALL_CONFIGS)))]
    fields = config.get("text_config", config)
    value = data.draw(json_values)
    name = data.draw(st.sampled_from(sorted(fields)))
    if isinstance(fields[name], dict) and data.draw(st.booleans()):
        inner = data.draw(st.sampled_from(sorted(fields[name])))
        value = {**fields[name], inner: value}
    try:
        spec = read(tmp_path, config, **{name: value})
    except BadInputError:
        return
    json.dumps(inspect_document(spec, 1), allow_nan=False)
