"""Further published models: the parameters that their publishers state, and what is refused, by name."""

import json
from pathlib import Path
from typing import Any

import earlier_configs as earlier
import family_configs as configs
import pytest
import test_model as models
from sparse_checkpoint import write_checkpoint

from placer.errors import BadInputError
from placer.model.inspect import inspect_document
from placer.model.module import StoredTensor
from placer.model.spec import ModelSpec, read_model


def read(folder: Path, config: dict[str, Any], **changes: Any) -> ModelSpec:
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return read_model(folder)


# MoE layers, parameters (transformers 5.24 counts as many on the meta device, but for router corrections, which
# it does not call parameters), bytes of an expert, bf16 KV bytes per token.
@pytest.mark.parametrize(
    ("name", "layers", "parameters", "stored", "kv"),
    [
        ("QWEN1_5_MOE", 24, 14_315_784_192, 17_301_504, 196_608),
        ("QWEN2_57B", 28, 57_408_658_944, 55_050_240, 57_344),
        ("DEEPSEEK_MOE_16B", 27, 16_375_728_128, 17_301_504, 229_376),
        ("DEEPSEEK_V2_LITE", 26, 15_706_484_224, 17_301_504, 31_104),
        ("DEEPSEEK_V2", 59, 235_741_434_880, 47_185_920, 69_120),
        ("DOTS_LLM1", 61, 142_774_373_888 + 61 * 128, 34_603_008, 1_015_808),
        ("FLEX_OLMO_7X7B", 32, 33_270_665_216, 270_532_608, 524_288),
        ("GRANITE_1B_A400M", 24, 1_334_628_352, 3_145_728, 49_152),
        ("PHI_MINI_MOE", 32, 7_647_632_704, 23_592_960, 131_072),
        ("QWEN3_OMNI_30B", 48, 30_532_646_912, 9_437_184, 98_304),
    ],
)
def test_sizes(tmp_path: Path, name: str, layers: int, parameters: int, stored: int, kv: int) -> None:
    spec = read(tmp_path, getattr(earlier, name))
    assert len(spec.moe_layers) == layers
    assert spec.parameters["total"] == parameters
    assert spec.checkpoint_expert_bytes == stored
    assert spec.kv_bytes_per_token_per_gpu(1, "bf16") == kv


def small(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    widths = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32}
    return {**config, **widths, "num_hidden_layers": 3, **changes}


@pytest.mark.parametrize(
    "config",
    [
        small(earlier.QWEN1_5_MOE, shared_expert_intermediate_size=48),
        small(earlier.DEEPSEEK_MOE_16B),
        small(earlier.DEEPSEEK_V2_LITE),
        small(earlier.DOTS_LLM1),
        small(earlier.FLEX_OLMO_7X7B),
    ],
    ids=lambda config: config["model_type"],
)
def test_a_checkpoint_is_measured_as_it_is_computed(tmp_path: Path, config: dict[str, Any]) -> None:
    folder = write_checkpoint(tmp_path, config)
    stored, computed = read_model(folder), read_model(folder / "config.json")
    assert "mismatch" not in stored.provenance
    assert stored.parameters == computed.parameters
    assert stored.weights == computed.weights


def test_experts_of_granite_are_fused(tmp_path: Path) -> None:
    # input_linear holds gate and up of all experts, output_linear down.
    config = small(earlier.GRANITE_1B_A400M, intermediate_size=32)
    folder = write_checkpoint(
        tmp_path,
        config,
        fuse=lambda _plan, at: [
            StoredTensor(f"{at}.input_linear.weight", "BF16", (32, 2 * 32, 64)),
            StoredTensor(f"{at}.output_linear.weight", "BF16", (32, 64, 32)),
        ],
    )
    stored = read_model(folder)
    assert "mismatch" not in stored.provenance
    assert stored.checkpoint_expert_bytes == 3 * 32 * 64 * 2
    assert stored.parameters == read_model(folder / "config.json").parameters


def test_a_language_model_inside_a_speaking_wrapper_is_found(tmp_path: Path) -> None:
    spec = read(tmp_path, earlier.QWEN3_OMNI_30B)
    assert spec.architecture == "Qwen3OmniMoeForConditionalGeneration"
    assert "thinker_config.text_config (other towers" in spec.provenance["config"]
    assert "bf16 is assumed" not in spec.provenance["config"]


def test_a_window_that_no_rule_applies_is_said(tmp_path: Path) -> None:
    assumed = inspect_document(read(tmp_path, earlier.PHI_MINI_MOE), 1)["provenance"]["assumed"]
    assert assumed == "sliding_window 2,047 is left out of account: every layer is taken to cache every token"
    # As wide as the context, switched off, or absent: nothing is assumed.
    for config, changes in (
        (models.PHI_3_5_MOE, {"sliding_window": 131072}),
        (earlier.QWEN1_5_MOE, {"sliding_window": 4096}),
        (models.MIXTRAL, {"sliding_window": None}),
    ):
        assert "assumed" not in read(tmp_path, config, **changes).provenance
    with pytest.raises(BadInputError, match="use_sliding_window"):
        read(tmp_path, earlier.QWEN1_5_MOE, use_sliding_window=True)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (models.DEEPSEEK_V3, "n_shared_experts"),
        (models.DEEPSEEK_V3, "q_lora_rank"),
        (models.GLM_4_5_AIR, "n_shared_experts"),
        (earlier.QWEN1_5_MOE, "shared_expert_intermediate_size"),
        (configs.QWEN3_NEXT_80B, "shared_expert_intermediate_size"),
        (configs.RING_1T, "num_shared_experts"),
        (configs.HUNYUAN_A13B, "num_shared_expert"),
        (configs.KIMI_LINEAR_48B, "num_shared_experts"),
        (configs.KIMI_LINEAR_48B, "q_lora_rank"),
        (configs.STEP_3_5_FLASH, "share_expert_dim"),
        (configs.MIMO_V2_FLASH, "n_shared_experts"),
        (configs.MIMO_V2_FLASH, "v_head_dim"),
        (configs.MIMO_V2_FLASH, "swa_v_head_dim"),
        (configs.DEEPSEEK_V4_FLASH, "expert_dtype"),
        (configs.LLAMA_4_MAVERICK["text_config"], "interleave_moe_layer_step"),
        (configs.STEP_3["text_config"], "share_q_dim"),
    ],
)
def test_a_field_whose_absence_would_change_sizes_must_be_there(
    tmp_path: Path, config: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadInputError, match=f"lacks {field}"):
        read(tmp_path, {name: value for name, value in config.items() if name != field})


def test_null_says_that_there_is_none(tmp_path: Path) -> None:
    assert read(tmp_path, models.DEEPSEEK_V3, n_shared_experts=None).shared_experts == 0
    full_rank = read(tmp_path, models.DEEPSEEK_V3, q_lora_rank=None).parameters["total"]
    # q_proj in the place of q_a_proj, q_b_proj and a norm, 61 times.
    wider = 128 * 192 * 7168 - 1536 * (7168 + 128 * 192) - 1536
    assert full_rank - read(tmp_path, models.DEEPSEEK_V3).parameters["total"] == 61 * wider


def test_absent_switches_mean_what_the_runtimes_take_them_for(tmp_path: Path) -> None:
    # gpt-oss has biases and MiniMax norms of queries and keys unless config.json says otherwise.
    for config, field in (
        (models.GPT_OSS_20B, "attention_bias"),
        (models.MINIMAX_M2, "use_qk_norm"),
        ({**configs.MINIMAX_M3["text_config"], "model_type": "minimax_m3"}, "use_qk_norm"),
    ):
        stated = read(tmp_path, config)
        absent = read(tmp_path, {name: value for name, value in config.items() if name != field})
        assert absent.weights == stated.weights


PLAIN = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 256,
}


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({**PLAIN, "model_type": "llama"}, ("llama has no experts",)),
        ({**PLAIN, "model_type": "seed_oss", "head_dim": 128}, ("seed_oss has no experts",)),
        ({**PLAIN, "model_type": "llama", "num_experts": 0}, ("has no experts",)),
        ({"text_config": {**PLAIN, "model_type": "gemma4_text", "num_experts": None}}, ("no experts",)),
        ({**models.QWEN3_30B, "num_experts": 0}, ("num_experts is 0",)),
        (
            {"text_config": {**PLAIN, "model_type": "gemma4_text", "num_experts": 8, "top_k_experts": 2}},
            ("gemma4_text", "num_experts", "top_k_experts"),
        ),
        (
            {"model_type": "dbrx", "n_layers": 40, "ffn_config": {"moe_num_experts": 16, "moe_top_k": 4}},
            ("dbrx", "ffn_config.moe_num_experts"),
        ),
        (
            {**PLAIN, "model_type": "jamba", "num_experts": 16, "attn_layer_period": 8, "mamba_d_state": 16},
            ("jamba", "attn_layer_period", "mamba_d_state"),
        ),
        (
            {"model_type": "longcat_flash", "n_routed_experts": 512, "zero_expert_num": 256},
            ("longcat_flash", "zero_expert_num"),
        ),
        ({**models.DEEPSEEK_V3, "zero_expert_num": 256}, ("zero_expert_num",)),
        (
            {**PLAIN, "model_type": "ernie4_5_moe_vl", "moe_num_experts": [64, 64]},
            ("ernie4_5_moe_vl", "moe_num_experts"),
        ),
        ({**models.MIXTRAL, "attn_type_list": [0, 1]}, ("attn_type_list",)),
        ({**models.MIXTRAL, "quantization": {"group_size": 64, "bits": 4}}, ("quantization",)),
        ({**models.MIXTRAL, "compression_config": {"format": "dense"}}, ("compression_config",)),
        ({**models.QWEN3_30B, "quantization_config": {"group_size": 64, "bits": 4}}, ("quant_method None",)),
        ({**configs.STEP_3_5_FLASH, "num_sliding_attention_heads": 96}, ("num_sliding_attention_heads",)),
    ],
)
def test_what_has_no_experts_or_no_rule_is_refused_by_name(
    tmp_path: Path, config: dict[str, Any], named: tuple[str, ...]
) -> None:
    with pytest.raises(BadInputError) as caught:
        read(tmp_path, config)
    assert all(name in caught.value.what for name in named)


def test_mistral_s_own_format_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(json.dumps({"dim": 7168, "n_layers": 61, "moe": {}}))
    with pytest.raises(BadInputError, match=r"only Mistral's own params\.json"):
        read_model(tmp_path)


def test_an_unbounded_time_step_is_no_obstacle(tmp_path: Path) -> None:
    # transformers writes it into the config.json of mamba hybrids, as JSON does not allow it.
    config = {**PLAIN, "model_type": "nemotron_h", "n_routed_experts": 128, "mamba_num_heads": 64}
    text = json.dumps({**config, "time_step_limit": [0.0, float("inf")]})
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(BadInputError, match="mamba_num_heads"):
        read_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**models.MIXTRAL, "hidden_size": float("inf")}))
    with pytest.raises(BadInputError, match="lacks hidden_size"):
        read_model(tmp_path)
