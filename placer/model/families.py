"""The model families that placer sizes: one declarative entry each.

To add a family, add an entry: where the counts and widths are in config.json, the rule for MoE layers, the
kind of attention, and the names of its weights. Fields that no entry reads are refused by
`placer.model.blueprint` when they change a model's structure, so an entry that is too simple fails loudly.
"""

from collections.abc import Callable
from dataclasses import dataclass

from placer.errors import BadInputError
from placer.model.attention import Attention, GroupedQuery, LatentAttention
from placer.model.config import Config
from placer.model.layer_rule import after_dense_prefix, every_layer, sparse_step


@dataclass(frozen=True)
class Router:
    """The module that scores experts.

    Attributes
    ----------
    at
        Its place in a layer.
    bias
        Whether it holds a bias [E] in the checkpoint's dtype.
    correction_at
        Module that holds ``e_score_correction_bias`` [E] in float32; None where there is none.
    has_correction
        Whether this config has the correction.
    """

    at: str
    bias: bool = False
    correction_at: str | None = None
    has_correction: Callable[[Config], bool] = lambda _config: True


@dataclass(frozen=True)
class Experts:
    """Where a layer keeps its routed experts.

    Attributes
    ----------
    at
        Their place in a layer; expert e is ``{at}.{e}`` unless all are fused into one tensor.
    matrices
        Names of gate, up and down; fused tensors are recognised by ``experts`` alone.
    bias
        Whether an expert holds biases, 2I + H values in bf16.
    """

    at: str = "mlp.experts"
    matrices: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    bias: bool = False


@dataclass(frozen=True)
class Family:
    """How to read the config.json and the checkpoint of one family.

    Attributes
    ----------
    model_types, architectures
        Values of ``model_type`` and ``architectures[0]`` that mean this family.
    experts_field, top_k_field, width_field
        Fields of E, k and the expert width I; several names of one count must agree.
    layer_rule
        Which layers are MoE layers.
    attention, router, experts
        The weights of a MoE layer.
    shared_field
        Field with the number of shared experts, each of width I, at ``mlp.shared_experts``.
    mtp_field
        Field with the number of multi-token-prediction layers stored after the last layer (DeepSeek-V3's
        layout: a MoE layer with its own copies of embedding and head).
    block_scale_dtype
        Element type of block-FP8 scales as this family's checkpoints store them.
    norm_bias
        Whether the layer norms hold biases.
    head_bias_field
        Field that gives the output head a bias.
    no_effect
        Structural fields that this family's published checkpoints carry and that change no size.
    """

    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    experts_field: tuple[str, ...]
    layer_rule: Callable[[Config, int], tuple[int, ...]]
    attention: Attention
    router: Router
    top_k_field: tuple[str, ...] = ("num_experts_per_tok",)
    width_field: tuple[str, ...] = ("moe_intermediate_size",)
    experts: Experts = Experts()
    shared_field: str | None = None
    mtp_field: str | None = None
    block_scale_dtype: str = "F32"
    norm_bias: bool = False
    head_bias_field: str | None = None
    no_effect: tuple[str, ...] = ()


_MIXTRAL_EXPERTS = Experts("block_sparse_moe.experts", ("w1", "w3", "w2"))

FAMILIES = (
    Family(
        model_types=("qwen3_moe",),
        architectures=("Qwen3MoeForCausalLM",),
        experts_field=("num_experts", "num_local_experts"),
        layer_rule=sparse_step,
        attention=GroupedQuery(biased=("q_proj", "k_proj", "v_proj", "o_proj"), norm="head"),
        router=Router("mlp.gate"),
        block_scale_dtype="BF16",
    ),
    Family(
        model_types=("gpt_oss",),
        architectures=("GptOssForCausalLM",),
        experts_field=("num_local_experts",),
        top_k_field=("num_experts_per_tok", "experts_per_token"),
        width_field=("intermediate_size",),
        layer_rule=every_layer,
        attention=GroupedQuery(biased=("q_proj", "k_proj", "v_proj", "o_proj"), sinks=True, windowed=True),
        router=Router("mlp.router", bias=True),
        experts=Experts(bias=True),
    ),
    Family(
        model_types=("deepseek_v3", "kimi_k2"),
        architectures=("DeepseekV3ForCausalLM",),
        experts_field=("n_routed_experts",),
        layer_rule=after_dense_prefix,
        attention=LatentAttention(biased=("q_a_proj", "kv_a_proj_with_mqa", "o_proj")),
        router=Router(
            "mlp.gate",
            correction_at="mlp.gate",
            has_correction=lambda config: config.text("topk_method", default="noaux_tc") == "noaux_tc",
        ),
        shared_field="n_shared_experts",
        mtp_field="num_nextn_predict_layers",
    ),
    Family(
        model_types=("glm4_moe",),
        architectures=("Glm4MoeForCausalLM",),
        experts_field=("n_routed_experts",),
        layer_rule=after_dense_prefix,
        attention=GroupedQuery(biased=("q_proj", "k_proj", "v_proj"), norm="head", norm_field="use_qk_norm"),
        router=Router("mlp.gate", correction_at="mlp.gate"),
        shared_field="n_shared_experts",
        mtp_field="num_nextn_predict_layers",
    ),
    Family(
        model_types=("olmoe",),
        architectures=("OlmoeForCausalLM",),
        experts_field=("num_experts",),
        width_field=("intermediate_size",),
        layer_rule=every_layer,
        attention=GroupedQuery(
            biased=("q_proj", "k_proj", "v_proj", "o_proj"), norm="projection", derived_head_dim=True
        ),
        router=Router("mlp.gate"),
    ),
    Family(
        model_types=("mixtral",),
        architectures=("MixtralForCausalLM",),
        experts_field=("num_local_experts",),
        width_field=("intermediate_size",),
        layer_rule=every_layer,
        attention=GroupedQuery(derived_head_dim=True),
        router=Router("block_sparse_moe.gate"),
        experts=_MIXTRAL_EXPERTS,
    ),
    Family(
        model_types=("phimoe",),
        architectures=("PhiMoEForCausalLM", "PhimoeForCausalLM"),
        experts_field=("num_local_experts",),
        width_field=("intermediate_size",),
        layer_rule=every_layer,
        attention=GroupedQuery(biased=("q_proj", "k_proj", "v_proj", "o_proj"), derived_head_dim=True),
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
        attention=GroupedQuery(norm="projection", norm_field="use_qk_norm"),
        router=Router(
            "block_sparse_moe.gate",
            correction_at="block_sparse_moe",
            has_correction=lambda config: config.flag("use_routing_bias", default=True),
        ),
        experts=_MIXTRAL_EXPERTS,
        # The published checkpoints declare MTP modules and hold none.
        no_effect=("num_mtp_modules",),
    ),
)

_EXPERT_COUNT_FIELDS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")


def family_of(config: Config) -> Family:
    """The family of ``config``, by its ``model_type`` (its architecture where that is absent).

    Raises
    ------
    BadInputError
        When model_type and architecture disagree, the model has no experts, or no family describes it: names
        the fields that stay uninterpreted.
    """
    model_type = config.text("model_type", default="")
    architecture = None if config.nested else config.architecture
    known = [
        family
        for family in FAMILIES
        if (model_type in family.model_types if model_type else architecture in family.architectures)
    ]
    if known and (architecture is None or architecture in known[0].architectures):
        return known[0]
    if known:
        raise BadInputError(
            f"{config.path}: architectures {architecture!r} does not belong to model_type {model_type!r}",
            f"expected {' or '.join(known[0].architectures)}",
        )
    supported = ", ".join(name for family in FAMILIES for name in family.model_types)
    if not any(config.has(name) for name in _EXPERT_COUNT_FIELDS):
        raise BadInputError(
            f"{config.path}: no experts: none of {', '.join(_EXPERT_COUNT_FIELDS)} is there",
            f"placer places mixture-of-experts models ({supported})",
        )
    raise BadInputError(
        f"{config.path}: cannot interpret model_type {model_type!r} (architectures {config.architecture!r}): "
        f"no rule for its fields {', '.join(_shaping_fields(config))}",
        f"supported: {supported}; a new family is one entry in placer/model/families.py",
    )


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
    names = [
        name
        for name in config.fields
        if name not in _EVERYWHERE and name.isidentifier() and any(word in name for word in _SHAPING_WORDS)
    ]
    return sorted(names)[:_SHOWN_FIELDS]
