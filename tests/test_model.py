"""ModelSpec from config.json alone: the figures of known models, tensor parallelism, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from family_configs import DEEPSEEK_V3, FP8
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import placer.examples
from placer.errors import BadInputError
from placer.model.inspect import inspect_document
from placer.model.module import WEIGHT_CLASSES
from placer.model.spec import ModelSpec, read_model

GIB = 2**30

QWEN3_30B: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "torch_dtype": "bfloat16",
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
QWEN3_CODER_480B = {
    **QWEN3_30B,
    "num_hidden_layers": 62,
    "hidden_size": 6144,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "num_experts": 160,
    "moe_intermediate_size": 2560,
    "quantization_config": FP8,
}
GPT_OSS_20B: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
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
    "experts_per_token": 4,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "quantization_config": {"quant_method": "mxfp4"},
}
KIMI_K2 = {
    **DEEPSEEK_V3,
    "model_type": "kimi_k2",
    "first_k_dense_replace": 1,
    "n_routed_experts": 384,
    "num_attention_heads": 64,
    "num_nextn_predict_layers": 0,
    "vocab_size": 163840,
    "max_position_embeddings": 131072,
}
OLMOE = {
    "architectures": ["OlmoeForCausalLM"],
    "model_type": "olmoe",
    "num_hidden_layers": 16,
    "hidden_size": 2048,
    "intermediate_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "vocab_size": 50304,
    "max_position_embeddings": 4096,
}
MIXTRAL = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
}
PHI_3_5_MOE = {
    **MIXTRAL,
    "architectures": ["PhiMoEForCausalLM"],
    "model_type": "phimoe",
    "attention_bias": True,
    "lm_head_bias": True,
    "intermediate_size": 6400,
    "num_local_experts": 16,
    "vocab_size": 32064,
    "max_position_embeddings": 131072,
}
MINIMAX_M2 = {
    "architectures": ["MiniMaxM2ForCausalLM"],
    "model_type": "minimax_m2",
    "num_hidden_layers": 62,
    "hidden_size": 3072,
    "intermediate_size": 1536,
    "head_dim": 128,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "num_local_experts": 256,
    "num_experts_per_tok": 8,
    "use_qk_norm": True,
    "use_routing_bias": True,
    "num_mtp_modules": 3,
    "vocab_size": 200064,
    "max_position_embeddings": 196608,
    "quantization_config": FP8,
}
GLM_4_5_AIR = {
    "architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe",
    "attention_bias": True,
    "num_hidden_layers": 46,
    "first_k_dense_replace": 1,
    "hidden_size": 4096,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "head_dim": 128,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "use_qk_norm": False,
    "num_nextn_predict_layers": 1,
    "vocab_size": 151552,
    "max_position_embeddings": 131072,
}
ALL_CONFIGS = {
    config["model_type"]: config
    for config in (
        QWEN3_30B,
        GPT_OSS_20B,
        DEEPSEEK_V3,
        KIMI_K2,
        OLMOE,
        MIXTRAL,
        PHI_3_5_MOE,
        MINIMAX_M2,
        GLM_4_5_AIR,
    )
}


def read(folder: Path, config: dict[str, Any], **changes: Any) -> ModelSpec:
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return read_model(folder)


# MoE layers, parameters, one expert in the checkpoint, in block FP8 and in RAWINT4, bf16 KV per token, state.
@pytest.mark.parametrize(
    ("config", "layers", "parameters", "stored", "fp8", "rawint4", "kv", "state"),
    [
        (QWEN3_30B, 48, 30_532_122_624, 9_437_184, 4_719_744, 2_949_120, 98_304, 0),
        (QWEN3_CODER_480B, 62, 480_154_875_392, 47_191_680, 47_197_440, 29_491_200, 253_952, 0),
        (GPT_OSS_20B, 24, 20_914_757_184, 13_236_480, 24_889_548, 15_552_000, 24_576, 3 * 2**20),
        (DEEPSEEK_V3, 58, 671_026_419_200, 44_050_944, 44_050_944, 27_525_120, 70_272, 0),
        (KIMI_K2, 60, 1_026_408_232_448, 44_050_944, 44_050_944, 27_525_120, 70_272, 0),
        (OLMOE, 16, 6_919_161_856, 12_582_912, 6_292_992, 3_932_160, 131_072, 0),
        (MIXTRAL, 32, 46_702_792_704, 352_321_536, 176_203_776, 110_100_480, 131_072, 0),
        (PHI_3_5_MOE, 32, 41_873_153_344, 157_286_400, 78_662_400, 49_152_000, 131_072, 0),
        (MINIMAX_M2, 62, 228_689_764_864, 14_159_232, 14_159_232, 8_847_360, 253_952, 0),
        (GLM_4_5_AIR, 45, 106_852_251_264, 34_603_008, 17_305_728, 10_813_440, 188_416, 0),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else None,
)
def test_known_models_have_their_published_sizes(
    tmp_path: Path,
    config: dict[str, Any],
    layers: int,
    parameters: int,
    stored: int,
    fp8: int,
    rawint4: int,
    kv: int,
    state: int,
) -> None:
    spec = read(tmp_path, config)
    assert len(spec.moe_layers) == layers
    assert spec.parameters["total"] == parameters
    assert spec.checkpoint_expert_bytes == stored
    assert spec.expert_bytes("fp8_block") == fp8
    assert spec.expert_bytes("rawint4") == rawint4
    assert spec.kv_bytes_per_token_per_gpu(1, "bf16") == kv
    assert spec.kv_bytes_per_token_per_gpu(1, "fp8") == kv // 2
    assert spec.state_bytes_per_request_per_gpu(1) == state
    assert spec.provenance["sizes"] == "computed from config.json"


def test_mtp_layers_count_apart(tmp_path: Path) -> None:
    with_mtp = read(tmp_path, DEEPSEEK_V3).parameters
    without = read(tmp_path, DEEPSEEK_V3, num_nextn_predict_layers=0).parameters
    assert without == {**with_mtp, "mtp": 0}
    # Layer 61: attention, router, shared and routed experts, eh_proj, copies of embedding and head, norms.
    attention = 7168 * (1536 + 576) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
    experts = 257 * 3 * 7168 * 2048 + 256 * 7168 + 256
    norms = 5 * 7168 + 1536 + 512
    assert with_mtp["mtp"] == attention + experts + 2 * 7168**2 + 2 * 129280 * 7168 + norms


def test_weights_per_gpu_of_a_480b_model_on_four_gpus(tmp_path: Path) -> None:
    weights = read(tmp_path, QWEN3_CODER_480B).weights_bytes_per_gpu(4)
    assert tuple(weights) == WEIGHT_CLASSES
    # Per layer: q and o of 12,288 x 6,144, k and v of 1,024 x 6,144, in FP8, a quarter of each.
    values = (2 * 12288 * 6144 + 2 * 1024 * 6144) // 4
    assert weights["attention"] == 62 * (values + values // 128**2 * 4)
    assert weights["embedding"] == 2 * 151936 * 6144 * 2 // 4
    # Routers and norms are whole on every GPU.
    assert weights["router"] == 62 * 160 * 6144 * 2
    assert weights["norms"] == (62 * (2 * 6144 + 2 * 128) + 6144) * 2
    rounded = {name: round(weights[name] / GIB, 2) for name in ("attention", "embedding", "router")}
    assert rounded == {"attention": 2.36, "embedding": 0.87, "router": 0.11}


def test_weights_agree_with_server_logs(tmp_path: Path) -> None:
    # SGLang logs on one H100: 16.41 GiB with 32 bf16 experts per layer on the GPU, 29.15 GiB all in FP8.
    bf16 = read(tmp_path, QWEN3_30B)
    held = sum(bf16.weights_bytes_per_gpu(1).values()) + 48 * 32 * bf16.expert_bytes("bf16")
    assert round(held / GIB, 2) == 16.37
    fp8 = read(tmp_path, QWEN3_30B, quantization_config=FP8)
    held = sum(fp8.weights_bytes_per_gpu(1).values()) + 48 * 128 * fp8.expert_bytes("fp8_block")
    assert round(held / GIB, 2) == 29.03


def test_latent_attention_keeps_bf16_copies_of_its_up_projection(tmp_path: Path) -> None:
    spec = read(tmp_path, DEEPSEEK_V3)
    copies = 61 * 128 * (128 + 128) * 512 * 2 // 8
    assert round(copies / GIB, 2) == 0.24
    fp8 = 1 + 4 / 128**2
    # Down-projections are whole on every GPU, the rest is cut by 8.
    whole, cut = 7168 * 1536 + 7168 * 576, 1536 * 24576 + 512 * 32768 + 16384 * 7168
    scales_of_kv_a = -(-576 // 128) * 56 * 4 - 576 * 7168 * 4 / 128**2
    stored = 61 * ((whole + cut / 8) * fp8 + scales_of_kv_a)
    assert spec.weights_bytes_per_gpu(8)["attention"] == stored + copies


def test_kv_heads_repeat_when_there_are_more_gpus(tmp_path: Path) -> None:
    spec = read(tmp_path, QWEN3_30B)
    assert [spec.kv_bytes_per_token_per_gpu(tp, "bf16") for tp in (1, 2, 4, 8)] == [
        98304,
        49152,
        24576,
        24576,
    ]
    # So do their projections: 4 heads of 128 are cut by at most 4.
    kv = {tp: spec.weights_bytes_per_gpu(tp)["attention"] - 48 * 2 * 4096 * 2048 * 2 // tp for tp in (4, 8)}
    assert kv[4] == kv[8] == 48 * 2 * 128 * 2048 * 2


def test_the_latent_cache_is_whole_on_every_gpu(tmp_path: Path) -> None:
    spec = read(tmp_path, DEEPSEEK_V3)
    assert spec.kv_bytes_per_token_per_gpu(8, "bf16") == 61 * (512 + 64) * 2
    assert spec.kv_bytes_per_token_per_gpu(8, "fp8") == 61 * (512 + 64)


def test_sliding_windows_cost_requests_not_tokens(tmp_path: Path) -> None:
    spec = read(tmp_path, GPT_OSS_20B)
    assert spec.kv_bytes_per_token_per_gpu(2, "bf16") == 12 * 4 * 2 * 64 * 2
    assert spec.state_bytes_per_request_per_gpu(1, "fp8") == 128 * 12 * 8 * 2 * 64
    everywhere = read(tmp_path, GPT_OSS_20B, layer_types=["full_attention"] * 24)
    assert everywhere.state_bytes_per_request_per_gpu(1) == 0
    assert everywhere.kv_bytes_per_token_per_gpu(1, "bf16") == 24 * 8 * 2 * 64 * 2


def test_fp8_blocks_limit_tp(tmp_path: Path) -> None:
    coder = read(tmp_path, QWEN3_CODER_480B)
    assert coder.fp8_tp_problem(4) is None
    problem = coder.fp8_tp_problem(8)
    assert problem is not None
    assert "2,560 to 320" in problem
    assert problem.endswith("possible: tp 1, 2, 4")
    assert problem in inspect_document(coder, 8)["provenance"]["gpu"]
    for config, fails in ((QWEN3_30B, 4), (MINIMAX_M2, 8), (GPT_OSS_20B, 2)):
        spec = read(tmp_path, config)
        assert spec.fp8_tp_problem(fails) is not None
        assert spec.fp8_tp_problem(1) is None
    # Dense layers of a block-FP8 checkpoint are cut as well: 18,432 / 8 = 18 blocks.
    assert read(tmp_path, DEEPSEEK_V3).fp8_tp_problem(8) is None
    assert read(tmp_path, DEEPSEEK_V3, intermediate_size=18432 + 128).fp8_tp_problem(8) is not None


def test_tp_must_divide_the_heads(tmp_path: Path) -> None:
    spec = read(tmp_path, QWEN3_30B)
    for call in (
        lambda: spec.weights_bytes_per_gpu(3),
        lambda: spec.kv_bytes_per_token_per_gpu(64, "bf16"),
        lambda: spec.state_bytes_per_request_per_gpu(0),
        lambda: inspect_document(spec, -1),
    ):
        with pytest.raises(BadInputError, match="32 attention heads and 4 KV heads") as caught:
            call()
        # 4 and more would divide the heads, but cut FP8 experts of 768 into parts of blocks.
        assert caught.value.hint == (
            "use --tp 1, 2 (4, 8, 16, 32 would cut the experts' width 768 within FP8 blocks of 128)"
        )


def test_expert_formats_by_hand(tmp_path: Path) -> None:
    # One expert of H 256, I 128: three matrices of 32,768 weights.
    spec = read(tmp_path, QWEN3_30B, hidden_size=256, moe_intermediate_size=128)
    weights = 3 * 32768
    assert spec.expert_bytes("bf16") == 2 * weights
    assert spec.expert_bytes("fp8_block") == weights + 3 * 2 * 4
    assert spec.expert_bytes("fp8_channel") == weights + 4 * (128 + 128 + 256)
    assert spec.expert_bytes("mxfp4") == weights // 2 + weights // 32
    assert spec.expert_bytes("int4_g32") == weights // 2 + 2 * weights // 32 + 3 * 8
    assert spec.expert_bytes("rawint4") == spec.expert_bytes("torch_int4") == weights * 5 // 8
    assert spec.expert_bytes("amxint4") == weights // 2 + 4 * (128 + 128 + 256)
    assert spec.expert_bytes("amxint8", numa_nodes=2) == weights + 4 * (128 + 128 + 2 * 256)
    # Each matrix with its 8 bytes of scales is rounded up to 64.
    assert spec.expert_bytes("kt_fp8") == 3 * (32768 + 64)
    with pytest.raises(BadInputError, match="int3"):
        spec.expert_bytes("int3")
    with pytest.raises(BadInputError, match="fp4"):
        spec.kv_bytes_per_token_per_gpu(1, "fp4")


def test_biases_belong_to_the_model_not_to_kernel_buffers(tmp_path: Path) -> None:
    spec = read(tmp_path, GPT_OSS_20B)
    biases = 2 * (2 * 2880 + 2880)
    assert spec.expert_bytes("bf16") == 2 * 3 * 2880**2 + biases
    assert spec.checkpoint_expert_bytes == spec.expert_bytes("mxfp4") + biases


@pytest.mark.parametrize(
    ("config", "changes", "layers"),
    [
        (QWEN3_30B, {"num_hidden_layers": 6, "decoder_sparse_step": 2}, (1, 3, 5)),
        (QWEN3_30B, {"num_hidden_layers": 6, "mlp_only_layers": [0, 5]}, (1, 2, 3, 4)),
        (DEEPSEEK_V3, {"num_hidden_layers": 8, "moe_layer_freq": 2}, (4, 6)),
        (
            DEEPSEEK_V3,
            {"num_hidden_layers": 4, "first_k_dense_replace": 0, "moe_layer_freq": [0, 1, 0, 1]},
            (1, 3),
        ),
        (MIXTRAL, {"num_hidden_layers": 3}, (0, 1, 2)),
    ],
)
def test_moe_layer_rules(
    tmp_path: Path, config: dict[str, Any], changes: dict[str, Any], layers: tuple[int, ...]
) -> None:
    assert read(tmp_path, config, **changes).moe_layers == layers


def test_layers_without_experts_hold_a_dense_mlp(tmp_path: Path) -> None:
    spec = read(tmp_path, QWEN3_30B, num_hidden_layers=2, mlp_only_layers=[0])
    assert spec.weights_bytes_per_gpu(2)["dense"] == 3 * 2048 * 6144 * 2 // 2
    assert spec.parameters["routed"] == 128 * 3 * 2048 * 768


def test_modules_left_out_of_the_quantization_stay_bf16(tmp_path: Path) -> None:
    quantised = read(tmp_path, QWEN3_30B, quantization_config=FP8).weights_bytes_per_gpu(1)
    skipping = {**FP8, "modules_to_not_convert": ["lm_head", "model.layers.0.self_attn"]}
    first_plain = read(tmp_path, QWEN3_30B, quantization_config=skipping).weights_bytes_per_gpu(1)
    values = 2048 * (2 * 4096 + 2 * 512)
    assert first_plain["attention"] - quantised["attention"] == values - values // 128**2 * 4
    assert {**first_plain, "attention": 0} == {**quantised, "attention": 0}


def test_a_nested_text_config_is_read(tmp_path: Path) -> None:
    text = {name: value for name, value in DEEPSEEK_V3.items() if name != "architectures"}
    document = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "text_config": text,
    }
    nested, plain = read(tmp_path, document), read(tmp_path, DEEPSEEK_V3)
    assert nested.architecture == "KimiK25ForConditionalGeneration"
    assert nested.parameters == plain.parameters
    assert "other towers" in nested.provenance["config"]


def test_names(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--Qwen--Qwen3-30B-A3B" / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    assert read(snapshot, QWEN3_30B).name == "Qwen3-30B-A3B"
    lone = tmp_path / "Qwen3-30B.json"
    lone.write_text(json.dumps(QWEN3_30B))
    assert read_model(lone).name == "Qwen3-30B"
    assert read_model(str(snapshot / "config.json")) == read_model(snapshot / "config.json")


def test_the_bundled_example_is_a_block_fp8_qwen3_30b() -> None:
    spec = read_model(Path(str(placer.examples.__path__[0])) / "qwen3-30b-a3b")
    assert spec.moe_layers == tuple(range(48))
    assert (spec.experts, spec.top_k) == (128, 8)
    assert spec.expert_bytes("fp8_block") == 4_719_744
    assert spec.kv_bytes_per_token_per_gpu(1, "bf16") == 98_304
    assert spec.expert_format == {"checkpoint": "fp8_block", "gpu": "fp8_block", "cpu": "rawint4"}


def test_inspect_document(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    document = inspect_document(read(folder, QWEN3_30B, num_hidden_layers=2), 4)
    sha256 = read_model(folder).config_sha256
    assert len(sha256) == 64
    assert document["model"] == "tiny"
    assert document["architecture"] == "Qwen3MoeForCausalLM"
    assert document["moe_layers"] == [0, 1]
    assert document["expert_bytes"] == {"checkpoint": 9_437_184, "gpu": 4_719_744, "cpu": 2_949_120}
    assert document["kv_bytes_per_token_per_gpu"] == {"bf16": 1024, "fp8": 512}
    assert document["parameters"]["active"] == document["parameters"]["total"] - 2 * 120 * 3 * 2048 * 768
    assert set(document) == {
        *("model", "architecture", "moe_layers", "num_layers", "experts", "top_k", "shared_experts", "tp"),
        *("hidden_size", "expert_intermediate_size", "expert_bytes", "expert_format", "parameters"),
        *("weights_bytes_per_gpu", "kv_bytes_per_token_per_gpu", "state_bytes_per_request_per_gpu"),
        "provenance",
    }
    assert json.loads(json.dumps(document, allow_nan=False)) == document


@pytest.mark.parametrize(
    ("config", "changes", "named"),
    [
        (QWEN3_30B, {"num_experts": None}, "num_experts"),
        (QWEN3_30B, {"num_experts": "128"}, "num_experts"),
        (QWEN3_30B, {"num_experts": 128.0}, "num_experts"),
        (QWEN3_30B, {"num_experts": 0}, "num_experts"),
        (QWEN3_30B, {"num_experts": True}, "num_experts"),
        (QWEN3_30B, {"num_experts": 10**30}, "num_experts"),
        (QWEN3_30B, {"num_experts": 128, "num_local_experts": 64}, "disagree"),
        (QWEN3_30B, {"num_experts_per_tok": 129}, "num_experts_per_tok"),
        (QWEN3_30B, {"num_hidden_layers": 10**9}, "num_hidden_layers"),
        (QWEN3_30B, {"num_hidden_layers": 1024, "num_experts": 65535}, "num_experts"),
        (QWEN3_30B, {"head_dim": None}, "head_dim"),
        (QWEN3_30B, {"num_key_value_heads": 5}, "num_key_value_heads"),
        (QWEN3_30B, {"mlp_only_layers": list(range(48))}, "MoE layer"),
        (QWEN3_30B, {"mlp_only_layers": 3}, "mlp_only_layers"),
        (QWEN3_30B, {"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        (QWEN3_30B, {"torch_dtype": "int8"}, "torch_dtype"),
        (QWEN3_30B, {"architectures": "Qwen3MoeForCausalLM"}, "architectures"),
        (QWEN3_30B, {"architectures": ["MixtralForCausalLM"]}, "does not belong"),
        (QWEN3_30B, {"num_experts": None, "model_type": "llama"}, "no experts"),
        (QWEN3_30B, {"quantization_config": []}, "quantization_config"),
        (GPT_OSS_20B, {"layer_types": ["full_attention"]}, "layer_types"),
        (GPT_OSS_20B, {"layer_types": ["linear_attention"] * 24}, "layer_types"),
        (GPT_OSS_20B, {"sliding_window": None}, "sliding_window"),
        (DEEPSEEK_V3, {"first_k_dense_replace": 61}, "MoE layer"),
        (DEEPSEEK_V3, {"moe_layer_freq": [1]}, "moe_layer_freq"),
        (DEEPSEEK_V3, {"moe_layer_freq": 0}, "moe_layer_freq"),
        (DEEPSEEK_V3, {"kv_lora_rank": -512}, "kv_lora_rank"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(
    tmp_path: Path, config: dict[str, Any], changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadInputError, match=named) as caught:
        read(tmp_path, config, **changes)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("config", "changes", "named"),
    [
        (
            QWEN3_30B,
            {"architectures": ["NewMoeForCausalLM"], "model_type": "new_moe", "linear_num_value_heads": 32},
            (
                "new_moe",
                "NewMoeForCausalLM",
                "num_experts",
                "moe_intermediate_size",
                "linear_num_value_heads",
            ),
        ),
        (DEEPSEEK_V3, {"index_topk": 2048, "index_n_heads": 64}, ("index_topk", "index_n_heads")),
        (QWEN3_30B, {"full_attention_interval": 4}, ("full_attention_interval",)),
        (QWEN3_30B, {"shared_expert_intermediate_size": 512}, ("shared_expert_intermediate_size",)),
        (MIXTRAL, {"num_nextn_predict_layers": 1}, ("num_nextn_predict_layers",)),
        (GLM_4_5_AIR, {"layer_types": ["full_attention", "sliding_attention"] * 23}, ("layer_types",)),
    ],
)
def test_what_no_rule_describes_is_refused_by_name(
    tmp_path: Path, config: dict[str, Any], changes: dict[str, Any], named: tuple[str, ...]
) -> None:
    with pytest.raises(BadInputError) as caught:
        read(tmp_path, config, **changes)
    assert all(name in caught.value.what for name in named)


def test_structural_fields_with_neutral_values_are_no_obstacle(tmp_path: Path) -> None:
    plain = read(tmp_path, QWEN3_30B)
    neutral = {
        "shared_expert_intermediate_size": 0,
        "qkv_bias": False,
        "moe_layer_freq": 1,
        "layer_types": ["full_attention"] * 48,
        "index_topk": None,
    }
    assert read(tmp_path, QWEN3_30B, **neutral).weights == plain.weights


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"7", b'{"a": NaN}', b"\xff\xfe", b'{"a":' * 100_000, b'{"a": 1e999}']
)
def test_a_file_that_is_no_config_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(BadInputError):
        read_model(tmp_path)


def test_a_missing_or_oversized_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"no config\.json"):
        read_model(tmp_path)
    with pytest.raises(BadInputError, match=r"no config\.json"):
        read_model(tmp_path / "nowhere")
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(BadInputError, match="larger than"):
        read_model(tmp_path)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_subnormal=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_in_any_field_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    config = dict(ALL_CONFIGS[data.draw(st.sampled_from(sorted(ALL_CONFIGS)))], num_hidden_layers=4)
    field = data.draw(
        st.sampled_from([*sorted(config), "text_config", "moe_layer_freq", "num_nextn_predict_layers"])
    )
    config[field] = data.draw(json_values)
    try:
        spec = read(tmp_path, config)
    except BadInputError:
        return
    json.dumps(inspect_document(spec, 1), allow_nan=False)


@pytest.mark.parametrize("config", ALL_CONFIGS.values(), ids=ALL_CONFIGS)
def test_gpus_together_hold_at_least_the_model_and_each_no_more_than_before(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    spec = read(tmp_path, config)
    for fewer, more in ((1, 2), (2, 4), (4, 8)):
        before, after = spec.weights_bytes_per_gpu(fewer), spec.weights_bytes_per_gpu(more)
        for name in WEIGHT_CLASSES:
            assert after[name] <= before[name] <= 2 * after[name]
        for dtype in ("bf16", "fp8"):
            before_kv = spec.kv_bytes_per_token_per_gpu(fewer, dtype)
            after_kv = spec.kv_bytes_per_token_per_gpu(more, dtype)
            assert after_kv <= before_kv <= 2 * after_kv
