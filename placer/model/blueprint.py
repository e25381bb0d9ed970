"""The shape that config.json implies: every count, and every module outside the routed experts."""

from dataclasses import dataclass

from placer.errors import BadInputError
from placer.model.config import Config
from placer.model.counts import Counts, read_counts
from placer.model.families import Family, family_of
from placer.model.formats import expert_bytes, fp8_block_bytes
from placer.model.inventory import inventory
from placer.model.kv import CacheGroup
from placer.model.module import Module
from placer.model.quantization import Quantization, quantization_of

_STRUCTURAL_FIELDS = (
    "add_full_attention_sink_bias",
    "attn_output_gate",
    "compress_ratios",
    "decoder_sparse_step",
    "expert_dtype",
    "first_k_dense_replace",
    "full_attention_interval",
    "hash_layers",
    "hc_mult",
    "hybrid_layer_pattern",
    "index_head_dim",
    "index_n_heads",
    "index_topk",
    "interleave_moe_layer_step",
    "kv_lora_rank",
    "layer_types",
    "linear_attn_config",
    "linear_conv_kernel_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "lm_head_bias",
    "mlp_bias",
    "mlp_layer_types",
    "mlp_only_layers",
    "moe_layer_freq",
    "moe_layer_interval",
    "moe_layers_enum",
    "n_shared_experts",
    "num_attention_groups",
    "num_hash_layers",
    "num_mtp_modules",
    "num_nextn_predict_layers",
    "num_shared_experts",
    "o_lora_rank",
    "q_lora_rank",
    "qkv_bias",
    "routed_expert_hidden_size",
    "shared_expert_intermediate_size",
    "shared_intermediate_size",
    "swa_num_key_value_heads",
    "v_head_dim",
    "zero_expert_num",
)
"""Fields that add, drop or reshape weights or cache; one that a family does not read is refused."""
_NEUTRAL: dict[str, object] = {"decoder_sparse_step": 1, "moe_layer_freq": 1}


@dataclass(frozen=True)
class Blueprint:
    """What config.json says of a model.

    Attributes
    ----------
    family, quantization
        How to read it and how it is stored.
    counts
        Counts and widths.
    cache
        What the layers cache.
    modules
        Every weight outside the routed experts, MTP layers with their experts included.
    """

    family: Family
    quantization: Quantization
    counts: Counts
    cache: tuple[CacheGroup, ...]
    modules: tuple[Module, ...]

    @property
    def expert_parameters(self) -> int:
        """Parameters of one routed expert, biases included."""
        return (
            3 * self.counts.hidden_size * self.counts.expert_intermediate_size + self.expert_bias_parameters
        )

    @property
    def expert_bias_parameters(self) -> int:
        """2I + H where the family's experts hold biases."""
        if not self.family.experts.bias:
            return 0
        return 2 * self.counts.expert_intermediate_size + self.counts.hidden_size

    @property
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
    def checkpoint_expert_bytes(self) -> int:
        """Bytes of one routed expert in the checkpoint by formula, biases (two bytes each) included."""
        H, width = self.counts.hidden_size, self.counts.expert_intermediate_size
        name = self.expert_format
        biases = 2 * self.expert_bias_parameters
        if name != "fp8_block":
            return expert_bytes(name, H=H, width=width) + biases
        block = self.quantization.block
        scale_bytes = 2 if self.family.block_scale_dtype == "BF16" else 4
        return biases + sum(
            fp8_block_bytes(N, K, block=block, scale_bytes=scale_bytes)
            for N, K in ((width, H), (width, H), (H, width))
        )


def blueprint(config: Config) -> Blueprint:
    """Interpret ``config`` by its family's entry.

    Raises
    ------
    BadInputError
        When the family or the quantization is unknown, a field is missing, out of range or contradicts
        another, or the config holds a structural field that the family's entry does not interpret.
    """
    family = family_of(config)
    counts = read_counts(config, family)
    result = Blueprint(
        family=family,
        quantization=quantization_of(config),
        counts=counts,
        cache=family.attention.cache(config, counts.num_layers),
        modules=tuple(inventory(config, family, counts)),
    )
    _refuse_uninterpreted(config, family)
    return result


def _refuse_uninterpreted(config: Config, family: Family) -> None:
    config.ignore(family.no_effect)
    left = [name for name in config.unread(_STRUCTURAL_FIELDS) if config.fields[name] != _NEUTRAL.get(name)]
    if "layer_types" in left and all(kind == "full_attention" for kind in config.items("layer_types")):
        left.remove("layer_types")
    if left:
        raise BadInputError(
            f"{config.path}: {family.model_types[0]} with {', '.join(left)} has no sizing rule",
            "remove the field if it has no effect, or extend the family's entry in placer/model/families.py",
        )
