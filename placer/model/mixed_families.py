"""The families whose layers differ in attention, or share keys and values in their own way: one entry each."""

from dataclasses import replace

from placer.model.attention import Attention, uniform
from placer.model.block_sparse_attention import BlockSparseAttention, block_sparse_kinds
from placer.model.config import Config
from placer.model.factorised_attention import FactorisedAttention
from placer.model.family import Experts, Family, Router
from placer.model.family_parts import DEEPSEEK_ROUTER, MIXTRAL_EXPERTS, QKVO, QWEN_SHARED, flag
from placer.model.gated_delta import GatedDelta
from placer.model.grouped_query import GroupedQuery, HeadFields, window_of
from placer.model.layer_kinds import chunked_kinds, named_kinds, named_or_every
from placer.model.layer_rule import (
    enumerated,
    enumerated_or_after_prefix,
    every_layer,
    interleaved,
    masked_or_after_prefix,
    sparse_step,
)
from placer.model.mtp import MtpLayers, qwen_mtp
from placer.model.shared_experts import SharedExperts

_WINDOWED = {"full_attention": "full", "sliding_attention": "sliding"}

_RECURRENT = {"full_attention": "full", "linear_attention": "linear"}


def _always(config: Config) -> bool:
    del config
    return True


_GPT_OSS_ATTENTION = GroupedQuery(biased=QKVO, bias_unless_stated=True, sinks=_always)

_GATED_QUERY = GroupedQuery(biased=QKVO, norm="head", gated=flag("attn_output_gate", default=True))

_MIMO_SLIDING = GroupedQuery(
    HeadFields("swa_num_attention_heads", ("swa_num_key_value_heads",), "swa_head_dim", "swa_v_head_dim"),
    biased=("q_proj", "k_proj", "v_proj"),
    sinks=flag("add_swa_attention_sink_bias", default=True),
    window=window_of("sliding_window"),
)

_STEP_3_5_ATTENTION = GroupedQuery(
    HeadFields(kv=("num_attention_groups", "num_key_value_heads")),
    norm="head",
    gate="g_proj",
    gate_field="use_head_wise_attn_gate",
)

_LLAMA_4_ATTENTION = GroupedQuery(biased=QKVO)

MIXED_FAMILIES = (
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
        shared=QWEN_SHARED,
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
        shared=QWEN_SHARED,
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
                    sinks=flag("add_full_attention_sink_bias", default=False),
                ),
                "sliding": _MIMO_SLIDING,
            },
            named_kinds("hybrid_layer_pattern", {0: "full", 1: "sliding"}),
        ),
        router=DEEPSEEK_ROUTER,
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
            has_correction=flag("use_moe_router_bias", default=False),
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
            has_correction=flag("use_routing_bias", default=True),
        ),
        experts=MIXTRAL_EXPERTS,
        shared=SharedExperts(
            width_fields=("shared_intermediate_size",), at="block_sparse_moe.shared_experts"
        ),
        # The published checkpoints declare MTP modules and hold none.
        no_effect=("num_mtp_modules", "num_nextn_predict_layers", "attn_output_gate"),
    ),
)
