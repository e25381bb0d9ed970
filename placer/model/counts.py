"""The counts and widths of a model, read by its family's entry."""

from dataclasses import dataclass

from placer.errors import BadInputError
from placer.model.config import (
    MAX_ALL_EXPERTS,
    MAX_EXPERTS,
    MAX_LAYERS,
    MAX_TOKENS,
    MAX_VOCABULARY,
    MAX_WIDTH,
    Config,
)
from placer.model.family import Family

_MAX_MTP_LAYERS = 16
_MAX_MTP_EXPERTS = 8192
"""Published models have 512 in one layer; each is a module of its own here."""


@dataclass(frozen=True)
class Counts:
    """Counts and widths, under the names of `placer.model.spec.ModelSpec` where it has them too.

    Attributes
    ----------
    num_layers, moe_layers
        Layers of the model (MTP layers excluded), and the indices of the MoE layers among them.
    mtp_layers
        Multi-token-prediction layers stored after the last layer.
    experts, top_k, hidden_size, expert_hidden_size, expert_intermediate_size
        E, k, H, the width that experts take (H, or narrower) and I.
    shared_experts, shared_intermediate_size
        Shared experts of a MoE layer, and the width of all of them together.
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
    expert_hidden_size: int
    expert_intermediate_size: int
    shared_experts: int
    shared_intermediate_size: int
    dense_intermediate_size: int
    vocab_size: int
    max_context_tokens: int
    query_heads: int
    kv_heads: int | None


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
    experts = _one(config, family.experts_field, MAX_EXPERTS)
    top_k = _one(config, family.top_k_field, MAX_EXPERTS)
    if top_k > experts:
        raise config.error(family.top_k_field[0], top_k, f"at most the {experts} experts")
    mtp_layers = _mtp_layers(config, family)
    if mtp_layers * experts > _MAX_MTP_EXPERTS:
        raise config.error(
            family.experts_field[0], experts, f"at most {_MAX_MTP_EXPERTS:,} experts in all MTP layers"
        )
    if (len(moe_layers) + mtp_layers) * experts > MAX_ALL_EXPERTS:
        raise config.error(
            family.experts_field[0], experts, f"at most {MAX_ALL_EXPERTS:,} experts in all layers"
        )
    hidden = config.count("hidden_size")
    width = _one(config, family.width_field, MAX_WIDTH)
    shared_experts, shared_width = family.shared.read(config, width) if family.shared else (0, 0)
    return Counts(
        num_layers=num_layers,
        moe_layers=moe_layers,
        mtp_layers=mtp_layers,
        experts=experts,
        top_k=top_k,
        hidden_size=hidden,
        expert_hidden_size=config.count(family.latent.width_field, default=hidden)
        if family.latent
        else hidden,
        expert_intermediate_size=width,
        shared_experts=shared_experts,
        shared_intermediate_size=shared_width,
        dense_intermediate_size=_dense_width(config, family, needed=len(moe_layers) < num_layers),
        vocab_size=config.count("vocab_size", most=MAX_VOCABULARY),
        max_context_tokens=config.count(_first(config, family.positions_field), most=MAX_TOKENS),
        query_heads=config.count("num_attention_heads"),
        kv_heads=family.attention.kv_heads(config),
    )


def _one(config: Config, names: tuple[str, ...], most: int) -> int:
    """The count under ``names``; each may be a list of equal numbers."""
    if len(names) == 1:
        return config.alike(names[0], most=most)
    return config.count(*names, most=most)


def _mtp_layers(config: Config, family: Family) -> int:
    if family.mtp is None:
        return 0
    return config.count(family.mtp.field, least=0, most=_MAX_MTP_LAYERS, default=family.mtp.unless_stated)


def _dense_width(config: Config, family: Family, *, needed: bool) -> int:
    if not needed and not (family.mtp is not None and family.mtp.dense):
        return 0
    return config.alike(_first(config, family.dense_width_field))


def _first(config: Config, names: tuple[str, ...]) -> str:
    """The first of ``names`` that is present, the last when none is."""
    return next((name for name in names if config.has(name)), names[-1])
