"""The shape that config.json implies: every count, and every module outside the routed experts."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from placer.errors import BadInputError
from placer.model.config import MAX_TOKENS, Config
from placer.model.counts import Counts, read_counts
from placer.model.dtype import elements_bytes
from placer.model.families import family_of
from placer.model.family import Family
from placer.model.formats import packed_format
from placer.model.inventory import inventory
from placer.model.kv import CacheGroup, RequestState
from placer.model.module import Module
from placer.model.quantization import Quantization, quantization_of
from placer.model.storage import Naming, stored_tensors

_STRUCTURAL_FIELDS = (
    "add_full_attention_sink_bias",
    "attn_layer_period",
    "attn_output_gate",
    "attn_type_list",
    "compress_ratios",
    "decoder_sparse_step",
    "enable_moe_block",
    "expert_dtype",
    "expert_layer_period",
    "first_k_dense_replace",
    "full_attention_interval",
    "global_attn_every_n_layers",
    "hash_layers",
    "hc_mult",
    "hybrid_layer_pattern",
    "index_head_dim",
    "index_n_heads",
    "index_topk",
    "index_topk_freq",
    "indexer_types",
    "interleave_moe_layer_step",
    "kv_lora_rank",
    "layer_group_size",
    "layer_types",
    "linear_attn_config",
    "linear_conv_kernel_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "lm_head_bias",
    "mamba_d_state",
    "mamba_num_heads",
    "mlp_bias",
    "mtp_num_hidden_layers",
    "mtp_use_dedicated_embeddings",
    "mlp_layer_types",
    "mlp_only_layers",
    "moe_layer_end_index",
    "moe_layer_freq",
    "moe_layer_interval",
    "moe_layer_start_index",
    "moe_layers_enum",
    "moe_num_shared_experts",
    "n_shared_experts",
    "num_attention_groups",
    "num_attention_heads_per_layer",
    "num_dense_layers",
    "num_hash_layers",
    "num_mtp_modules",
    "num_nextn_predict_layers",
    "num_shared_expert",
    "num_shared_experts",
    "num_sliding_attention_heads",
    "o_lora_rank",
    "per_layer_config",
    "q_lora_rank",
    "qkv_bias",
    "routed_expert_hidden_size",
    "sparse_attention_config",
    "share_expert_dim",
    "shared_expert_intermediate_size",
    "shared_intermediate_size",
    "swa_num_key_value_heads",
    "use_cla",
    "use_sliding_window",
    "v_head_dim",
    "zero_expert_num",
)
"""Fields that add, drop or reshape weights or cache; one that a family does not read is refused."""
_NEUTRAL: dict[str, object] = {"decoder_sparse_step": 1, "moe_layer_freq": 1, "index_topk_freq": 1}
_ONE_KIND = ("full_attention", "deepseek_sparse_attention", "indexed_attention")


@dataclass(frozen=True)
class Blueprint:
    """What config.json says of a model.

    Attributes
    ----------
    family, quantization
        How to read it and how it is stored.
    counts
        Counts and widths.
    cache, states
        What the layers cache per token, and what they keep per request.
    modules
        Every weight outside the routed experts, MTP layers with their experts included.
    assumed
        What is taken for granted; empty where every figure follows from config.json.
    """

    family: Family
    quantization: Quantization
    counts: Counts
    cache: tuple[CacheGroup, ...]
    states: tuple[RequestState, ...]
    modules: tuple[Module, ...]
    assumed: str = ""

    @property
    def expert_parameters(self) -> int:
        """Parameters of one routed expert, biases included."""
        return (
            3 * self.counts.expert_hidden_size * self.counts.expert_intermediate_size
            + self.expert_bias_parameters
        )

    @property
    def expert_bias_parameters(self) -> int:
        """2I + H where the family's experts hold biases."""
        if not self.family.experts.bias:
            return 0
        return 2 * self.counts.expert_intermediate_size + self.counts.expert_hidden_size

    @cached_property
    def expert_format(self) -> str:
        """Format of the routed experts in the checkpoint.

        Raises
        ------
        BadInputError
            When the quantization covers the experts of some layers only.
        """
        experts = self.family.experts
        formats = {
            self.quantization.format_of(f"model.layers.{layer}.{experts.at}.0.{matrix}")
            for layer in self.counts.moe_layers
            for matrix in experts.matrices
        }
        if len(formats) > 1:
            raise BadInputError(
                f"quantization_config stores experts in {' and '.join(sorted(formats))}",
                "give a checkpoint whose experts all have one format",
            )
        return formats.pop()

    @property
    def naming(self) -> Naming:
        """How the family's publishers store block scales."""
        return Naming(self.family.block_scale_dtype, self.family.scale_name)

    @property
    def packed_bits(self) -> int:
        """Bits of one weight where the experts are packed integers; 4 otherwise."""
        form = self.expert_format
        return packed_format(form).bits if form.startswith(("int", "gptq", "awq")) else 4

    @property
    def checkpoint_expert_bytes(self) -> int:
        """Bytes of one routed expert in the checkpoint by formula, biases (two bytes each) included."""
        H, width = self.counts.expert_hidden_size, self.counts.expert_intermediate_size
        at = f"model.layers.{self.counts.moe_layers[0]}.{self.family.experts.at}.0"
        shapes = ((width, H), (width, H), (H, width))
        matrices = [
            Module(f"{at}.{name}", "other", shape, linear=True)
            for name, shape in zip(self.family.experts.matrices, shapes, strict=True)
        ]
        return 2 * self.expert_bias_parameters + sum(
            elements_bytes(tensor.elements, tensor.dtype)
            for matrix in matrices
            for tensor in stored_tensors(matrix, self.quantization, self.naming)
        )


def blueprint(config: Config, beside: Mapping[str, Any] | None = None) -> Blueprint:
    """Interpret ``config`` by its family's entry; ``beside`` as for `quantization_of`.

    Raises
    ------
    BadInputError
        When the family or the quantization is unknown, a field is missing, out of range or contradicts
        another, or the config holds a structural field that the family's entry does not interpret.
    """
    family = family_of(config)
    counts = read_counts(config, family)
    if family.states_expert_dtype and config.quantization is not None:
        config.require("expert_dtype")
    result = Blueprint(
        family=family,
        quantization=quantization_of(config, beside),
        counts=counts,
        cache=family.attention.cache(config, counts.num_layers),
        states=family.attention.states(config, counts.num_layers),
        modules=tuple(inventory(config, family, counts)),
        assumed=_assumed(config, counts),
    )
    _refuse_uninterpreted(config, family)
    return result


def _assumed(config: Config, counts: Counts) -> str:
    """What is taken for granted; nothing where a rule says which layers have the window, or it is off."""
    # Families of windowed layers have read the field by now, and layer_types names the layers where it is.
    if not config.unread(("sliding_window",)) or config.fields.get("layer_types"):
        return ""
    if config.fields.get("use_sliding_window") is False:
        return ""
    window = config.count("sliding_window", least=0, most=MAX_TOKENS)
    if window >= counts.max_context_tokens:
        return ""
    return f"sliding_window {window:,} is left out of account: every layer is taken to cache every token"


def _alike(config: Config) -> list[list[str]]:
    """Lists that say of every layer what a family of one kind of attention does in all of them."""
    return [[kind] * len(config.items("layer_types")) for kind in _ONE_KIND]


def _refuse_uninterpreted(config: Config, family: Family) -> None:
    config.ignore(family.no_effect)
    left = [name for name in config.unread(_STRUCTURAL_FIELDS) if config.fields[name] != _NEUTRAL.get(name)]
    if "layer_types" in left and config.items("layer_types") in _alike(config):
        left.remove("layer_types")
    if left:
        raise BadInputError(
            f"{config.path}: {family.model_types[0]} with {', '.join(left)} has no sizing rule",
            "remove the field if it has no effect, or extend the family's entry in placer/model/families.py",
        )
