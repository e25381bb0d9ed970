"""The families whose layers all have grouped-query attention over the whole context: one entry each."""

from placer.model.attention import uniform
from placer.model.family import Experts, Family, Router
from placer.model.family_parts import DEEPSEEK_ROUTER, MIXTRAL_EXPERTS, QKVO, QWEN_SHARED, flag
from placer.model.grouped_query import GroupedQuery, HeadFields
from placer.model.layer_rule import after_dense_prefix, after_skipped, every_layer, ranged, sparse_step
from placer.model.mtp import DEEPSEEK_MTP, MtpLayers
from placer.model.shared_experts import SharedExperts

GROUPED_FAMILIES = (
    Family(
        model_types=("qwen3_moe", "qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text"),
        architectures=("Qwen3MoeForCausalLM", "Qwen3VLMoeForConditionalGeneration"),
        experts_field=("num_experts", "num_local_experts"),
        layer_rule=sparse_step,
        attention=uniform(GroupedQuery(biased=QKVO, norm="head")),
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
        shared=QWEN_SHARED,
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
            has_correction=flag("moe_router_enable_expert_bias", default=False),
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
        attention=uniform(GroupedQuery(HeadFields(derived=True), biased=QKVO, norm="projection")),
        router=Router("mlp.gate"),
    ),
    Family(
        model_types=("flex_olmo",),
        architectures=("FlexOlmoForCausalLM",),
        experts_field=("num_experts",),
        width_field=("intermediate_size",),
        layer_rule=every_layer,
        attention=uniform(GroupedQuery(HeadFields(derived=True), biased=QKVO, norm="projection")),
        router=Router("mlp.gate"),
        layer_norms=("post_attention_layernorm", "post_feedforward_layernorm"),
    ),
    Family(
        model_types=("dots1",),
        architectures=("Dots1ForCausalLM",),
        experts_field=("n_routed_experts",),
        layer_rule=after_dense_prefix,
        attention=uniform(GroupedQuery(HeadFields(derived=True), biased=QKVO, norm="head")),
        router=DEEPSEEK_ROUTER,
        shared=SharedExperts(),
    ),
    Family(
        model_types=("deepseek",),
        architectures=("DeepseekForCausalLM",),
        experts_field=("n_routed_experts",),
        layer_rule=after_dense_prefix,
        attention=uniform(GroupedQuery(HeadFields(derived=True), biased=QKVO)),
        router=Router("mlp.gate"),
        shared=SharedExperts(),
    ),
    Family(
        model_types=("granitemoe",),
        architectures=("GraniteMoeForCausalLM",),
        experts_field=("num_local_experts",),
        width_field=("intermediate_size",),
        layer_rule=every_layer,
        attention=uniform(GroupedQuery(HeadFields(derived=True), biased=QKVO)),
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
        experts=MIXTRAL_EXPERTS,
    ),
    Family(
        model_types=("phimoe",),
        architectures=("PhiMoEForCausalLM", "PhimoeForCausalLM"),
        experts_field=("num_local_experts",),
        width_field=("intermediate_size",),
        layer_rule=every_layer,
        attention=uniform(GroupedQuery(HeadFields(derived=True), biased=QKVO)),
        router=Router("block_sparse_moe.gate"),
        experts=MIXTRAL_EXPERTS,
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
            has_correction=flag("use_routing_bias", default=True),
        ),
        experts=MIXTRAL_EXPERTS,
        # The published checkpoints declare MTP modules and hold none.
        no_effect=("num_mtp_modules", "mtp_transformer_layers"),
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
                biased=QKVO,
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
        attention=uniform(GroupedQuery(HeadFields(derived=True), biased=QKVO, bias_field="use_bias")),
        router=Router(
            "mlp.gate",
            dtype="F32",
            correction_at="mlp.moe_statics",
            has_correction=flag("moe_use_aux_free", default=True),
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
)
