"""Every module of a model outside the routed experts of its MoE layers, as config.json implies them."""

from collections.abc import Iterator
from dataclasses import replace

from placer.model.config import Config
from placer.model.counts import Counts
from placer.model.families import Family
from placer.model.module import Module, Split


def inventory(config: Config, family: Family, counts: Counts) -> Iterator[Module]:
    """Embedding, head and final norm, then every layer, then the MTP layers with their experts."""
    yield Module("model.embed_tokens", "embedding", (counts.vocab_size, counts.hidden_size), Split.VOCAB)
    yield Module("model.norm", "norms", (counts.hidden_size,), bias=family.norm_bias)
    if not config.flag("tie_word_embeddings", default=False):
        bias = family.head_bias_field is not None and config.flag(family.head_bias_field, default=False)
        yield Module("lm_head", "embedding", (counts.vocab_size, counts.hidden_size), Split.VOCAB, bias=bias)
    moe = set(counts.moe_layers)
    for index in range(counts.num_layers):
        layer = f"model.layers.{index}"
        yield from _attention_and_norms(config, family, counts, layer)
        yield from family.attention.runtime_copies(config, layer)
        if index in moe:
            yield from _router_and_shared(config, family, counts, layer)
        else:
            yield from _mlp(f"{layer}.mlp", "dense", counts.hidden_size, counts.dense_intermediate_size)
    for index in range(counts.num_layers, counts.num_layers + counts.mtp_layers):
        for module in _mtp_layer(config, family, counts, f"model.layers.{index}"):
            yield replace(module, weight_class="mtp")


def _attention_and_norms(config: Config, family: Family, counts: Counts, layer: str) -> Iterator[Module]:
    yield from family.attention.modules(config, layer)
    for name in ("input_layernorm", "post_attention_layernorm"):
        yield Module(f"{layer}.{name}", "norms", (counts.hidden_size,), bias=family.norm_bias)


def _router_and_shared(config: Config, family: Family, counts: Counts, layer: str) -> Iterator[Module]:
    router = family.router
    shape = (counts.experts, counts.hidden_size)
    yield Module(f"{layer}.{router.at}", "router", shape, bias=router.bias)
    if router.correction_at is not None and router.has_correction(config):
        yield Module(
            f"{layer}.{router.correction_at}",
            "router",
            (counts.experts,),
            dtype="F32",
            parameter="e_score_correction_bias",
        )
    if counts.shared_experts:
        at = f"{layer}.mlp.shared_experts"
        yield from _mlp(at, "shared_experts", counts.hidden_size, counts.shared_intermediate_size)


def _mlp(
    at: str,
    weight_class: str,
    H: int,
    width: int,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Iterator[Module]:
    gate, up, down = names
    yield Module(f"{at}.{gate}", weight_class, (width, H), Split.OUTPUT, linear=True)
    yield Module(f"{at}.{up}", weight_class, (width, H), Split.OUTPUT, linear=True)
    yield Module(f"{at}.{down}", weight_class, (H, width), Split.INPUT, linear=True)


def _mtp_layer(config: Config, family: Family, counts: Counts, layer: str) -> Iterator[Module]:
    """One MTP layer as DeepSeek-V3 stores it (its README_WEIGHTS.md)."""
    H, vocabulary = counts.hidden_size, (counts.vocab_size, counts.hidden_size)
    yield from _attention_and_norms(config, family, counts, layer)
    yield from _router_and_shared(config, family, counts, layer)
    for expert in range(counts.experts):
        at = f"{layer}.{family.experts.at}.{expert}"
        yield from _mlp(at, "mtp", H, counts.expert_intermediate_size, family.experts.matrices)
    yield Module(f"{layer}.eh_proj", "mtp", (H, 2 * H))
    for name in ("enorm", "hnorm", "shared_head.norm"):
        yield Module(f"{layer}.{name}", "mtp", (H,))
    for name in ("embed_tokens", "shared_head.head"):
        yield Module(f"{layer}.{name}", "mtp", vocabulary, Split.VOCAB)
