"""Every module of a model outside the routed experts of its MoE layers, as config.json implies them."""

from collections.abc import Iterator
from dataclasses import replace

from placer.model.attention import LayerAttention
from placer.model.config import MAX_LAYERS, Config
from placer.model.counts import Counts
from placer.model.family import Family
from placer.model.module import Module, Split
from placer.model.mtp import MtpLayers


def inventory(config: Config, family: Family, counts: Counts) -> Iterator[Module]:
    """Embedding, head and final norm, then every layer, then the MTP layers with their experts."""
    yield from _ends(config, family, counts)
    moe = set(counts.moe_layers)
    hashed = _hash_layers(config, family)
    attention = family.attention.layers(config, counts.num_layers)
    for index, kind in enumerate(attention[: counts.num_layers]):
        layer = f"model.layers.{index}"
        yield from _attention_and_norms(config, family, counts, layer, kind)
        yield from kind.runtime_copies(config, layer)
        if index in moe:
            yield from _router(config, family, counts, layer, hashed=index < hashed)
            yield from _shared(family, counts, layer)
            if family.latent is not None:
                yield from family.latent.modules(config, layer, counts.hidden_size)
        else:
            yield from _dense(family, counts, layer)
    if family.mtp is not None and counts.mtp_layers:
        for module in _mtp(config, family, family.mtp, counts):
            yield replace(module, weight_class="mtp")


def _ends(config: Config, family: Family, counts: Counts) -> Iterator[Module]:
    vocabulary = (counts.vocab_size, counts.hidden_size)
    yield Module(family.embedding_at, "embedding", vocabulary, Split.VOCAB)
    yield Module("model.norm", "norms", (counts.hidden_size,), bias=family.norm_bias)
    yield from family.model_extras(config, "")
    if not config.flag("tie_word_embeddings", default=family.tied):
        bias = family.head_bias_field is not None and config.flag(family.head_bias_field, default=False)
        yield Module(family.head_at, "embedding", vocabulary, Split.VOCAB, bias=bias)


def _hash_layers(config: Config, family: Family) -> int:
    field = family.router.hash_layers_field
    return 0 if field is None else config.count(field, least=0, most=MAX_LAYERS, default=0)


def _attention_and_norms(
    config: Config, family: Family, counts: Counts, layer: str, attention: LayerAttention
) -> Iterator[Module]:
    yield from attention.modules(config, layer)
    for name in family.layer_norms:
        yield Module(f"{layer}.{name}", "norms", (counts.hidden_size,), bias=family.norm_bias)
    yield from family.layer_extras(config, layer)


def _router(config: Config, family: Family, counts: Counts, layer: str, *, hashed: bool) -> Iterator[Module]:
    router = family.router
    shape = (counts.experts, counts.hidden_size)
    yield Module(f"{layer}.{router.at}", "router", shape, bias=router.bias, dtype=router.dtype)
    if hashed:
        table = (counts.vocab_size, counts.top_k)
        yield Module(f"{layer}.{router.at}", "router", table, dtype="I32", parameter="tid2eid")
    elif router.correction_at is not None and router.has_correction(config):
        yield Module(
            f"{layer}.{router.correction_at}",
            "router",
            (counts.experts,),
            dtype="F32",
            parameter=router.correction_name,
        )


def _shared(family: Family, counts: Counts, layer: str) -> Iterator[Module]:
    shared, H = family.shared, counts.hidden_size
    if shared is None or not counts.shared_experts:
        return
    at = f"{layer}.{shared.at}"
    yield from _mlp(at, "shared_experts", H, counts.shared_intermediate_size, shared.matrices)
    if shared.gate is not None:
        yield Module(f"{layer}.{shared.gate}", "shared_experts", (1, H))


def _dense(family: Family, counts: Counts, layer: str) -> Iterator[Module]:
    at, width = f"{layer}.{family.dense_at}", counts.dense_intermediate_size
    yield from _mlp(at, "dense", counts.hidden_size, width, family.dense_matrices)


def _mlp(at: str, weight_class: str, H: int, width: int, names: tuple[str, str, str]) -> Iterator[Module]:
    gate, up, down = names
    yield Module(f"{at}.{gate}", weight_class, (width, H), Split.OUTPUT, linear=True)
    yield Module(f"{at}.{up}", weight_class, (width, H), Split.OUTPUT, linear=True)
    yield Module(f"{at}.{down}", weight_class, (H, width), Split.INPUT, linear=True)


def _mtp(config: Config, family: Family, mtp: MtpLayers, counts: Counts) -> Iterator[Module]:
    H = counts.hidden_size
    yield from mtp.shared(H)
    for index in range(counts.mtp_layers):
        layer = mtp.name(counts.num_layers, index)
        attention = family.attention.by_kind[family.attention.mtp]
        yield from _attention_and_norms(config, family, counts, layer, attention)
        if mtp.dense:
            yield from _dense(family, counts, layer)
        else:
            yield from _router(config, family, counts, layer, hashed=False)
            yield from _shared(family, counts, layer)
            for expert in range(counts.experts):
                at = f"{layer}.{family.experts.at}.{expert}"
                yield from _mlp(at, "mtp", H, counts.expert_intermediate_size, family.experts.matrices)
        yield from mtp.own(config, layer, H, counts.vocab_size)
