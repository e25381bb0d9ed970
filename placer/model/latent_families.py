"""The families whose attention caches a latent vector: one entry each."""

from dataclasses import replace

from placer.model.attention import Attention, uniform
from placer.model.compressed_attention import CompressedAttention, compressed_kinds
from placer.model.family import Experts, Family, LatentExperts, Router
from placer.model.family_parts import DEEPSEEK_ROUTER, MIXTRAL_EXPERTS
from placer.model.hyper_connections import head_connections, layer_connections
from placer.model.kimi_delta import KimiDelta, delta_kinds
from placer.model.latent_attention import Indexer, LatentAttention
from placer.model.layer_kinds import indexer_kinds
from placer.model.layer_rule import after_dense_prefix, every_layer, typed_or_after_prefix
from placer.model.mtp import DEEPSEEK_MTP, MtpLayers
from placer.model.shared_experts import SharedExperts

_LATENT_BIASES = ("q_a_proj", "kv_a_proj_with_mqa", "o_proj")

_SPARSE_LATENT = LatentAttention(biased=_LATENT_BIASES, indexer=Indexer())

LATENT_FAMILIES = (
    Family(
        model_types=("deepseek_v3", "kimi_k2"),
        architectures=("DeepseekV3ForCausalLM",),
        experts_field=("n_routed_experts",),
        layer_rule=after_dense_prefix,
        attention=uniform(LatentAttention(biased=_LATENT_BIASES)),
        router=DEEPSEEK_ROUTER,
        shared=SharedExperts(),
        mtp=DEEPSEEK_MTP,
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
        router=DEEPSEEK_ROUTER,
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
        hot_formats={"mxfp4": "mxfp4_f32"},
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
        router=DEEPSEEK_ROUTER,
        shared=SharedExperts(),
        mtp=DEEPSEEK_MTP,
    ),
    Family(
        model_types=("glm4_moe_lite",),
        architectures=("Glm4MoeLiteForCausalLM",),
        experts_field=("n_routed_experts",),
        layer_rule=typed_or_after_prefix,
        attention=uniform(LatentAttention(biased=_LATENT_BIASES)),
        router=DEEPSEEK_ROUTER,
        shared=SharedExperts(),
        mtp=DEEPSEEK_MTP,
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
        experts=MIXTRAL_EXPERTS,
        latent=LatentExperts("block_sparse_moe"),
        shared=SharedExperts("num_shared_experts", at="block_sparse_moe.shared_experts"),
    ),
)
