"""The counts and widths of a model, read by its family's entry."""

from dataclasses import dataclass

from placer.errors import BadInputError
from placer.model.config import MAX_ALL_EXPERTS, MAX_EXPERTS, MAX_LAYERS, MAX_TOKENS, MAX_VOCABULARY, Config
from placer.model.families import Family

_MAX_MTP_LAYERS = 16


@dataclass(frozen=True)
class Counts:
    """Counts and widths, under the names of `placer.model.spec.ModelSpec` where it has them too.

    Attributes
    ----------
    num_layers, moe_layers
        Layers of the model (MTP layers excluded), and the indices of the MoE layers among them.
    mtp_layers
        Multi-token-prediction layers stored after the last layer.
    experts, top_k, hidden_size, expert_intermediate_size
        E, k, H and I.
    shared_experts
        Shared experts of a MoE layer.
    dense_intermediate_size
        Width of the MLP of layers that are not MoE layers; 0 when all are.
    vocab_size, max_context_tokens
        Rows of the embedding, and tokens that positions reach.
    query_heads, kv_heads
        Attention heads; ``kv_heads`` is None for latent attention.
    """

    num_layers: int
    moe_layers: tuple[int, ...]
    mtp_layers: int
    experts: int
    top_k: int
    hidden_size: int
    expert_intermediate_size: int
    shared_experts: int
    dense_intermediate_size: int
    vocab_size: int
    max_context_tokens: int
    query_heads: int
    kv_heads: int | None

    @property
    def shared_intermediate_size(self) -> int:
        """Width of all shared experts of a layer together."""
        return self.shared_experts * self.expert_intermediate_size


def read_counts(config: Config, family: Family) -> Counts:
    """Read the counts of ``config``.

    Raises
    ------
    BadInputError
        When a field is missing, not a whole number in range or contradicts another, or no layer is a MoE
        layer.
    """
    num_layers = config.count("num_hidden_layers", most=MAX_LAYERS)
    moe_layers = family.layer_rule(config, num_layers)
    if not moe_layers:
        raise BadInputError(
            f"{config.path}: none of the {num_layers} layers is a MoE layer",
            "give a mixture-of-experts model",
        )
    experts = config.count(*family.experts_field, most=MAX_EXPERTS)
    top_k = config.count(*family.top_k_field, most=MAX_EXPERTS)
    if top_k > experts:
        raise config.error(family.top_k_field[0], top_k, f"at most the {experts} experts")
    mtp_layers = _optional(config, family.mtp_field, _MAX_MTP_LAYERS)
    if (len(moe_layers) + mtp_layers) * experts > MAX_ALL_EXPERTS:
        raise config.error(
            family.experts_field[0], experts, f"at most {MAX_ALL_EXPERTS:,} experts in all layers"
        )
    return Counts(
        num_layers=num_layers,
        moe_layers=moe_layers,
        mtp_layers=mtp_layers,
        experts=experts,
        top_k=top_k,
        hidden_size=config.count("hidden_size"),
        expert_intermediate_size=config.count(*family.width_field),
        shared_experts=_optional(config, family.shared_field, MAX_EXPERTS),
        dense_intermediate_size=config.count("intermediate_size") if len(moe_layers) < num_layers else 0,
        vocab_size=config.count("vocab_size", most=MAX_VOCABULARY),
        max_context_tokens=config.count("max_position_embeddings", most=MAX_TOKENS),
        query_heads=config.count("num_attention_heads"),
        kv_heads=family.attention.kv_heads(config),
    )


def _optional(config: Config, name: str | None, most: int) -> int:
    return 0 if name is None else config.count(name, least=0, most=most, default=0)
