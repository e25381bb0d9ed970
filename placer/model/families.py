"""The model families that placer sizes: one declarative entry each.

To add a family, add an entry: where the counts and widths are in config.json, the rule for MoE layers, the
kind of attention, and the names of its weights. Fields that no entry reads are refused by
`placer.model.blueprint` when they change a model's structure, so an entry that is too simple fails loudly.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from placer.errors import BadInputError
from placer.model.attention import Attention, uniform
from placer.model.block_sparse_attention import BlockSparseAttention, block_sparse_kinds
from placer.model.compressed_attention import CompressedAttention, compressed_kinds
from placer.model.config import Config
from placer.model.factorised_attention import FactorisedAttention
from placer.model.family import EXPERT_COUNT_FIELDS, Experts, Family, LatentExperts, Router
from placer.model.gated_delta import GatedDelta
from placer.model.grouped_query import GroupedQuery, HeadFields, window_of
from placer.model.hyper_connections import head_connections, layer_connections
from placer.model.kimi_delta import KimiDelta, delta_kinds
from placer.model.latent_attention import Indexer, LatentAttention
from placer.model.layer_kinds import chunked_kinds, indexer_kinds, named_kinds, named_or_every
from placer.model.layer_rule import (
    after_dense_prefix,
    after_skipped,
    enumerated,
    enumerated_or_after_prefix,
    every_layer,
    interleaved,
    masked_or_after_prefix,
    ranged,
    sparse_step,
    typed_or_after_prefix,
)
from placer.model.mtp import DEEPSEEK_MTP, MtpLayers, qwen_mtp
from placer.model.shared_experts import SharedExperts

_QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")
_MIXTRAL_EXPERTS = Experts("block_sparse_moe.experts", ("w1", "w3", "w2"))
_LATENT_BIASES = ("q_a_proj", "kv_a_proj_with_mqa", "o_proj")
_WINDOWED = {"full_attention": "full", "sliding_attention": "sliding"}
_RECURRENT = {"full_attention": "full", "linear_attention": "linear"}


def _flag(name: str, *, default: bool) -> Callable[[Config], bool]:
    return lambda config: config.flag(name, default=default)


def _always(config: Config) -> bool:
    del config
    return True


def _auxiliary_free(config: Config) -> bool:
    return config.text("topk_method", default="noaux_tc") == "noaux_tc"


_DEEPSEEK_ROUTER = Router("mlp.gate", correction_at="mlp.gate", has_correction=_auxiliary_free)
_SPARSE_LATENT = LatentAttention(biased=_LATENT_BIASES, indexer=Indexer())
_GPT_OSS_ATTENTION = GroupedQuery(biased=_QKVO, bias_unless_stated=True, sinks=_always)
_GATED_QUERY = GroupedQuery(biased=_QKVO, norm="head", gated=_flag("attn_output_gate", default=True))
_QWEN_SHARED = SharedExperts(
    None,
    ("shared_expert_intermediate_size",),
    whole_width=True,
    at="mlp.shared_expert",
    gate="mlp.shared_expert_gate",
)
_MIMO_SLIDING = GroupedQuery(
    HeadFields("swa_num_attention_heads", ("swa_num_key_value_heads",), "swa_head_dim", "swa_v_head_dim"),
    biased=("q_proj", "k_proj", "v_proj"),
    sinks=_flag("add_swa_attention_sink_bias", default=True),
    window=window_of("sliding_window"),
)
_STEP_3_5_ATTENTION = GroupedQuery(
    HeadFields(kv=("num_attention_groups", "num_key_value_heads")),
    norm="head",
    gate="g_proj",
    gate_field="use_head_wise_attn_gate",
)
_LLAMA_4_ATTENTION = GroupedQuery(biased=_QKVO)

FAMILIES = (
    Family(
        model_types=("qwen3_moe", "qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text"),
        architectures=("Qwen3MoeForCausalLM", "Qwen3VLMoeForConditionalGeneration"),
        experts_field=("num_experts", "num_local_experts"),
        layer_rule=sparse_step,
        attention=uniform(GroupedQuery(biased=_QKVO, norm="head")),
        router=Router("mlp.gate"),
        block_scale_dtype="BF16",
    ),
    Family(
        model_types=("qwen2_moe",),
        architectures=("Qwen2MoeForCausalLM",),
        experts_field=("num_experts",),
        layer_rule=sparse_step,
        attention=uniform(
            GroupedQuery(
                HeadFields(derived=True),
                biased=("q_proj", "k_proj", "v_proj"),
                bias_field="qkv_bias",
                bias_unless_stated=True,
            )
        ),
        router=Router("mlp.gate"),
        shared=_QWEN_SHARED,
    ),
    Family(
        model_types=("qwen3_next",),
        architectures=("Qwen3NextForCausalLM",),
        experts_field=("num_experts",),
        layer_rule=sparse_step,
        attention=Attention(
            {"full": _GATED_QUERY, "linear": GatedDelta(fused=True)},
            named_or_every("layer_types", _RECURRENT, "full_attention_interval", default=4),
        ),
        router=Router("mlp.gate"),
        shared=_QWEN_SHARED,
        # config.json does not count the one MTP layer that the checkpoints hold.
        mtp=replace(qwen_mtp("mtp_num_hidden_layers"), unless_stated=1),
        block_scale_dtype="BF16",
    ),
    Family(
        model_types=("qwen3_5_moe", "qwen3_5_moe_text"),
        architectures=("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"),
        experts_field=("num_experts",),
        layer_rule=sparse_step,
        attention=Attention(
            {"full": _GATED_QUERY, "linear": GatedDelta(fused=False)},
            named_or_every("layer_types", _RECURRENT, "full_attention_interval", default=4),
        ),
        router=Router("mlp.gate"),
        shared=_QWEN_SHARED,
        mtp=qwen_mtp("mtp_num_hidden_layers"),
        block_scale_dtype="BF16",
    ),
    Family(
        model_types=("gpt_oss",),
        architectures=("GptOssForCausalLM",),
        experts_field=("num_local_experts",),
        top_k_field=("num_experts_per_tok", "experts_per_token"),
        width_field=("intermediate_size",),
        layer_rule=every_layer,
        attention=Attention(
            {
                "full": _GPT_OSS_ATTENTION,
                "sliding": replace(_GPT_OSS_ATTENTION, window=window_of("sliding_window")),
            },
            named_kinds("layer_types", _WINDOWED),
        ),
        router=Router("mlp.router", bias=True),
        experts=Experts(bias=True),
    ),
    Family(
        model_types=("deepseek_v3", "kimi_k2"),
        architectures=("DeepseekV3ForCausalLM",),
        experts_field=("n_routed_experts",),
        layer_rule=after_dense_prefix,
        attention=uniform(LatentAttention(biased=_LATENT_BIASES)),
        router=_DEEPSEEK_ROUTER,
        shared=SharedExperts(),
        mtp=DEEPSEEK_MTP,
    ),
    Family(
        model_types=("deepseek",),
        architectures=("DeepseekForCausalLM",),
        experts_field=("n_routed_experts",),
        layer_rule=after_dense_prefix,
        attention=uniform(GroupedQuery(HeadFields(derived=True), biased=_QKVO)),
        router=Router("mlp.gate"),
        shared=SharedExperts(),
    ),
    Family(
        model_types=("deepseek_v2",),
        architectures=("DeepseekV2ForCausalLM",),
        experts_field=("n_routed_experts",),
        layer_rule=after_dense_prefix,
        attention=uniform(LatentAttention(biased=_LATENT_BIASES)),
        router=Router(
            "mlp.gate",
            correction_at="mlp.gate",
            has_correction=lambda config: config.text("topk_method", default="greedy") == "noaux_tc",
        ),
        shared=SharedExperts(),
    ),
    Family(
        model_types=("deepseek_v32",),
        architectures=("DeepseekV32ForCausalLM",),
        experts_field=("n_routed_experts",),
        layer_rule=typed_or_after_prefix,
        attention=uniform(_SPARSE_LATENT),
        router=_DEEPSEEK_ROUTER,
        shared=SharedExperts(),
        mtp=DEEPSEEK_MTP,
    ),
    Family(
        model_types=("deepseek_v4", "deepseek_ref"),
        architectures=("DeepseekV4ForCausalLM",),
        experts_field=("n_routed_experts",),
        layer_rule=every_layer,
        attention=Attention(
            {
                "full": CompressedAttention(0),
                "sparse": CompressedAttention(4),
                "heavy": CompressedAttention(128),
            },
            compressed_kinds,
        ),
        router=Router(
            "ffn.gate", correction_at="ffn.gate", correction_name="bias", hash_layers_field="num_hash_layers"
        ),
        experts=Experts("ffn.experts", ("w1", "w3", "w2")),
        shared=SharedExperts(at="ffn.shared_experts", matrices=("w1", "w3", "w2")),
        mtp=MtpLayers(
            "num_nextn_predict_layers",
            at="mtp.{mtp}",
            projections=(("e_proj", 1), ("h_proj", 1)),
            norms=("enorm", "hnorm", "norm"),
            quantised=True,
            extras=head_connections,
        ),
        scale_name="scale",
        layer_norms=("attn_norm", "ffn_norm"),
        embedding_at="embed",
        head_at="head",
        layer_extras=layer_connections,
        model_extras=head_connections,
        states_expert_dtype=True,
    ),
    Family(
        model_types=("glm_moe_dsa",),
        architectures=("GlmMoeDsaForCausalLM",),
        experts_field=("n_routed_experts",),
        layer_rule=typed_or_after_prefix,
        attention=Attention(
            {"full": _SPARSE_LATENT, "shared": replace(_SPARSE_LATENT, indexer=Indexer(stored=False))},
            indexer_kinds,
        ),
        router=_DEEPSEEK_ROUTER,
        shared=SharedExperts(),
        mtp=DEEPSEEK_MTP,
    ),
    Family(
        model_types=("glm4_moe", "glm4v_moe", "glm4v_moe_text"),
        architectures=("Glm4MoeForCausalLM", "Glm4vMoeForConditionalGeneration"),
        experts_field=("n_routed_experts",),
        layer_rule=after_dense_prefix,
        attention=uniform(
            GroupedQuery(biased=("q_proj", "k_proj", "v_proj"), norm="head", norm_field="use_qk_norm")
        ),
        router=Router("mlp.gate", correction_at="mlp.gate"),
        shared=SharedExperts(),
        mtp=DEEPSEEK_MTP,
    ),
    Family(
        model_types=("glm4_moe_lite",),
        architectures=("Glm4MoeLiteForCausalLM",),
        experts_field=("n_routed_experts",),
        layer_rule=typed_or_after_prefix,
        attention=uniform(LatentAttention(biased=_LATENT_BIASES)),
        router=_DEEPSEEK_ROUTER,
        shared=SharedExperts(),
        mtp=DEEPSEEK_MTP,
    ),
    Family(
        model_types=("bailing_moe_v2",),
        architectures=("BailingMoeV2ForCausalLM",),
        experts_field=("num_experts",),
        layer_rule=after_dense_prefix,
        attention=uniform(
            GroupedQuery(
                HeadFields(derived=True),
                at="attention",
                names=("query", "key", "value", "dense"),
                packed="query_key_value",
                biased=("query_key_value",),
                bias_field="use_qkv_bias",
                norm="head",
                norm_field="use_qk_norm",
                norm_names=("query_layernorm", "key_layernorm"),
            )
        ),
        router=Router(
            "mlp.gate",
            correction_at="mlp.gate",
            correction_name="expert_bias",
            has_correction=_flag("moe_router_enable_expert_bias", default=False),
        ),
        shared=SharedExperts("num_shared_experts", ("moe_shared_expert_intermediate_size",)),
        mtp=MtpLayers(
            "num_nextn_predict_layers",
            projections=(("eh_proj", 2),),
            norms=("enorm", "hnorm", "final_layernorm"),
        ),
        embedding_at="model.word_embeddings",
    ),
    Family(
        model_types=("olmoe",),
        architectures=("OlmoeForCausalLM",),
        experts_field=("num_experts",),
        width_field=("intermediate_size",),
        layer_rule=every_layer,
        attention=uniform(GroupedQuery(HeadFields(derived=True), biased=_QKVO, norm="projection")),
        router=Router("mlp.gate"),
    ),
    Family(
        model_types=("flex_olmo",),
        architectures=("FlexOlmoForCausalLM",),
        experts_field=("num_experts",),
        width_field=("intermediate_size",),
        layer_rule=every_layer,
        attention=uniform(GroupedQuery(HeadFields(derived=True), biased=_QKVO, norm="projection")),
        router=Router("mlp.gate"),
        layer_norms=("post_attention_layernorm", "post_feedforward_layernorm"),
    ),
    Family(
        model_types=("dots1",),
        architectures=("Dots1ForCausalLM",),
        experts_field=("n_routed_experts",),
        layer_rule=after_dense_prefix,
        attention=uniform(GroupedQuery(HeadFields(derived=True), biased=_QKVO, norm="head")),
        router=_DEEPSEEK_ROUTER,
        shared=SharedExperts(),
    ),
    Family(
        model_types=("granitemoe",),
        architectures=("GraniteMoeForCausalLM",),
        experts_field=("num_local_experts",),
        width_field=("intermediate_size",),
        layer_rule=every_layer,
        attention=uniform(GroupedQuery(HeadFields(derived=True), biased=_QKVO)),
        router=Router("block_sparse_moe.router.layer"),
        experts=Experts("block_sparse_moe"),
    ),
    Family(
        model_types=("mixtral",),
        architectures=("MixtralForCausalLM",),
        experts_field=("num_local_experts",),
        width_field=("intermediate_size",),
        layer_rule=every_layer,
        attention=uniform(GroupedQuery(HeadFields(derived=True))),
        router=Router("block_sparse_moe.gate"),
        experts=_MIXTRAL_EXPERTS,
    ),
    Family(
        model_types=("phimoe",),
        architectures=("PhiMoEForCausalLM", "PhimoeForCausalLM"),
        experts_field=("num_local_experts",),
        width_field=("intermediate_size",),
        layer_rule=every_layer,
        attention=uniform(GroupedQuery(HeadFields(derived=True), biased=_QKVO)),
        router=Router("block_sparse_moe.gate"),
        experts=_MIXTRAL_EXPERTS,
        norm_bias=True,
        head_bias_field="lm_head_bias",
    ),
    Family(
        model_types=("minimax_m2",),
        architectures=("MiniMaxM2ForCausalLM",),
        experts_field=("num_local_experts",),
        width_field=("intermediate_size",),
        layer_rule=every_layer,
        attention=uniform(GroupedQuery(norm="projection", norm_field="use_qk_norm", norm_unless_stated=True)),
        router=Router(
            "block_sparse_moe.gate",
            correction_at="block_sparse_moe",
            has_correction=_flag("use_routing_bias", default=True),
        ),
        experts=_MIXTRAL_EXPERTS,
        # The published checkpoints declare MTP modules and hold none.
        no_effect=("num_mtp_modules", "mtp_transformer_layers"),
    ),
    Family(
        model_types=("llama4", "llama4_text"),
        architectures=("Llama4ForCausalLM", "Llama4ForConditionalGeneration"),
        experts_field=("num_local_experts",),
        width_field=("intermediate_size",),
        dense_width_field=("intermediate_size_mlp",),
        layer_rule=interleaved,
        attention=Attention(
            {
                "full": _LLAMA_4_ATTENTION,
                "chunked": replace(_LLAMA_4_ATTENTION, window=window_of("attention_chunk_size", 8192)),
            },
            chunked_kinds,
        ),
        router=Router("feed_forward.router"),
        experts=Experts("feed_forward.experts"),
        shared=SharedExperts(None, ("intermediate_size",), at="feed_forward.shared_expert"),
        dense_at="feed_forward",
    ),
    Family(
        model_types=("hunyuan_v1_moe", "hunyuan", "hunyuan_moe"),
        architectures=("HunYuanMoEV1ForCausalLM", "HunYuanForCausalLM", "HunYuanMoEForCausalLM"),
        experts_field=("num_experts",),
        top_k_field=("moe_topk",),
        width_field=("moe_intermediate_size",),
        layer_rule=after_skipped("moe_layer_num_skipped"),
        attention=uniform(
            GroupedQuery(
                HeadFields(derived=True),
                biased=_QKVO,
                norm="head",
                norm_field="use_qk_norm",
                norm_unless_stated=True,
                norm_names=("query_layernorm", "key_layernorm"),
            )
        ),
        router=Router("mlp.gate.wg", dtype="F32"),
        shared=SharedExperts("num_shared_expert", ("intermediate_size",), at="mlp.shared_mlp"),
        no_effect=("attention_head_dim", "cla_share_factor", "q_lora_rank", "kv_lora_rank", "v_head_dim"),
    ),
    Family(
        model_types=("ernie4_5_moe",),
        architectures=("Ernie4_5_MoeForCausalLM",),
        experts_field=("moe_num_experts",),
        top_k_field=("moe_k",),
        layer_rule=ranged,
        attention=uniform(GroupedQuery(HeadFields(derived=True), biased=_QKVO, bias_field="use_bias")),
        router=Router(
            "mlp.gate",
            dtype="F32",
            correction_at="mlp.moe_statics",
            has_correction=_flag("moe_use_aux_free", default=True),
        ),
        shared=SharedExperts("moe_num_shared_experts", unless_stated=0),
        mtp=MtpLayers(
            "num_nextn_predict_layers",
            at="model.mtp_block.{mtp}",
            shared_projections=(("model.mtp_linear_proj.0", 2),),
            shared_norms=("model.mtp_emb_norm.0", "model.mtp_hidden_norm.0"),
            dense=True,
        ),
        tied=True,
    ),
    Family(
        model_types=("step3_text", "step3"),
        architectures=("Step3TextForCausalLM", "Step3VLForConditionalGeneration"),
        experts_field=("moe_num_experts",),
        top_k_field=("moe_top_k",),
        layer_rule=enumerated,
        attention=uniform(FactorisedAttention()),
        router=Router("moe.gate"),
        experts=Experts("moe"),
        shared=SharedExperts(None, ("share_expert_dim",), at="share_expert"),
        positions_field=("max_position_embedding", "max_position_embeddings", "max_seq_len"),
    ),
    Family(
        model_types=("mimo_v2_flash", "mimo_v2"),
        architectures=("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"),
        experts_field=("n_routed_experts",),
        layer_rule=masked_or_after_prefix,
        attention=Attention(
            {
                "full": GroupedQuery(
                    HeadFields(value="v_head_dim"),
                    biased=("q_proj", "k_proj", "v_proj"),
                    sinks=_flag("add_full_attention_sink_bias", default=False),
                ),
                "sliding": _MIMO_SLIDING,
            },
            named_kinds("hybrid_layer_pattern", {0: "full", 1: "sliding"}),
        ),
        router=_DEEPSEEK_ROUTER,
        shared=SharedExperts(),
    ),
    Family(
        model_types=("step3p5", "step3p7", "step3p7_text"),
        architectures=("Step3p5ForCausalLM", "Step3p7FlashForCausalLM", "Step3p7ForConditionalGeneration"),
        experts_field=("moe_num_experts", "num_experts", "n_routed_experts"),
        top_k_field=("moe_top_k", "num_experts_per_tok"),
        layer_rule=enumerated_or_after_prefix,
        attention=Attention(
            {
                "full": _STEP_3_5_ATTENTION,
                "sliding": replace(
                    _STEP_3_5_ATTENTION,
                    heads=HeadFields(kv=("num_attention_groups",), section="attention_other_setting"),
                    heads_unless_stated=_STEP_3_5_ATTENTION.heads,
                    window=window_of("sliding_window"),
                ),
            },
            named_kinds("layer_types", _WINDOWED, drafting=True),
            mtp="sliding",
        ),
        router=Router(
            "moe.gate",
            correction_at="moe",
            correction_name="router_bias",
            has_correction=_flag("use_moe_router_bias", default=False),
        ),
        experts=Experts("moe"),
        shared=SharedExperts(None, ("share_expert_dim",), at="share_expert"),
        mtp=MtpLayers(
            "num_nextn_predict_layers",
            projections=(("eh_proj", 2),),
            norms=("enorm", "hnorm", "transformer.shared_head.norm"),
            vocabularies=("transformer.shared_head.output",),
            dense=True,
        ),
        no_effect=("n_shared_experts",),
    ),
    Family(
        model_types=("minimax_m3", "minimax_m3_vl", "minimax_m3_vl_text"),
        architectures=(
            "MiniMaxM3ForCausalLM",
            "MiniMaxM3SparseForCausalLM",
            "MiniMaxM3SparseForConditionalGeneration",
        ),
        experts_field=("num_local_experts",),
        width_field=("moe_intermediate_size", "intermediate_size"),
        dense_width_field=("dense_intermediate_size",),
        layer_rule=masked_or_after_prefix,
        attention=Attention(
            {
                "full": GroupedQuery(norm="head", norm_field="use_qk_norm", norm_unless_stated=True),
                "sparse": BlockSparseAttention(valued=False),
                "valued": BlockSparseAttention(valued=True),
            },
            block_sparse_kinds,
        ),
        router=Router(
            "block_sparse_moe.gate",
            correction_at="block_sparse_moe",
            has_correction=_flag("use_routing_bias", default=True),
        ),
        experts=_MIXTRAL_EXPERTS,
        shared=SharedExperts(
            width_fields=("shared_intermediate_size",), at="block_sparse_moe.shared_experts"
        ),
        # The published checkpoints declare MTP modules and hold none.
        no_effect=("num_mtp_modules", "num_nextn_predict_layers", "attn_output_gate"),
    ),
    Family(
        model_types=("kimi_linear",),
        architectures=("KimiLinearForCausalLM",),
        experts_field=("num_experts",),
        top_k_field=("num_experts_per_token", "num_experts_per_tok"),
        layer_rule=after_dense_prefix,
        attention=Attention(
            {"full": LatentAttention(gate_field="mla_use_output_gate"), "linear": KimiDelta()}, delta_kinds
        ),
        router=Router("block_sparse_moe.gate", correction_at="block_sparse_moe.gate"),
        experts=_MIXTRAL_EXPERTS,
        latent=LatentExperts("block_sparse_moe"),
        shared=SharedExperts("num_shared_experts", at="block_sparse_moe.shared_experts"),
    ),
)


def knows(config: Config) -> bool:
    """Whether an entry describes the model type or architecture of ``config``."""
    return bool(_entries(config))


def family_of(config: Config) -> Family:
    """The family of ``config``, by its ``model_type`` (its architecture where that is absent).

    Raises
    ------
    BadInputError
        When model_type and architecture disagree, the model has no experts, or no family describes it: names
        the fields that stay uninterpreted.
    """
    model_type, architecture = _names(config)
    known = _entries(config)
    if known and (architecture is None or architecture in known[0].architectures):
        return known[0]
    if known:
        raise BadInputError(
            f"{config.path}: architectures {architecture!r} does not belong to model_type {model_type!r}",
            f"expected {' or '.join(known[0].architectures)}",
        )
    supported = ", ".join(name for family in FAMILIES for name in family.model_types)
    if not _speaks_of_experts(config.fields):
        raise BadInputError(
            f"{config.path}: {model_type or 'the model'} has no experts: none of "
            f"{', '.join(EXPERT_COUNT_FIELDS)} counts any",
            "placer places mixture-of-experts models: give one",
        )
    raise BadInputError(
        f"{config.path}: cannot interpret model_type {model_type!r} (architectures {config.architecture!r}): "
        f"no rule for its fields {', '.join(_shaping_fields(config))}",
        f"supported: {supported}; a new family is one entry in placer/model/families.py",
    )


def _speaks_of_experts(fields: Mapping[str, Any]) -> bool:
    """Whether a field, or one of an object among them, counts experts under whatever name."""
    inner = [value for name, value in fields.items() if isinstance(value, dict) and name.endswith("config")]
    return any(
        "expert" in name and "per_tok" not in name and type(value) in (int, list) and bool(value)
        for held in (fields, *inner)
        for name, value in held.items()
    )


def _names(config: Config) -> tuple[str, str | None]:
    """The language model's type, and the architecture where it is that of the language model."""
    model_type = config.text("model_type", default="")
    if config.nested and not model_type:
        outer = config.document.get("model_type")
        model_type = outer if isinstance(outer, str) else ""
    return model_type, None if config.nested else config.architecture


def _entries(config: Config) -> list[Family]:
    model_type, architecture = _names(config)
    return [
        family
        for family in FAMILIES
        if (model_type in family.model_types if model_type else architecture in family.architectures)
    ]


_SHAPING_WORDS = (
    "expert", "moe", "layer", "head", "lora", "linear", "conv", "ssm", "mamba", "window", "compress", "index",
    "nextn", "mtp", "hash", "sparse",
)  # fmt: skip
_EVERYWHERE = (
    "head_dim",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "max_window_layers",
)
_SHOWN_FIELDS = 24


def _shaping_fields(config: Config) -> list[str]:
    """Fields of ``config`` that look as if they shaped the model in its own way."""
    inner = {
        f"{name}.{field}"
        for name, value in config.fields.items()
        if isinstance(value, dict) and name.endswith("config") and name != "quantization_config"
        for field in value
    }
    names = [
        name
        for name in (*config.fields, *inner)
        if name not in _EVERYWHERE
        and name.replace(".", "_").isidentifier()
        and any(word in name for word in _SHAPING_WORDS)
    ]
    return sorted(names)[:_SHOWN_FIELDS]
