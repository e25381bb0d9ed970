"""A model of no known family, as far as its checkpoint's headers show what it is.

Experts, MoE layers and bytes are in the tensors' names and shapes. What attention caches is not: it is taken
as grouped-query attention over the whole context where every layer holds the projections of that, and the
model is refused where a layer does not or config.json has a field that says otherwise.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from placer.errors import BadInputError
from placer.model.attention import uniform
from placer.model.blueprint import Blueprint
from placer.model.checkpoint import canonical_name
from placer.model.config import MAX_EXPERTS, MAX_LAYERS, MAX_TOKENS, MAX_VOCABULARY, Config
from placer.model.counts import Counts
from placer.model.family import EXPERT_COUNT_FIELDS, Experts, Family, Router
from placer.model.formats import packed_format
from placer.model.grouped_query import GroupedQuery, HeadFields, Heads
from placer.model.kv import CacheGroup
from placer.model.layer_rule import every_layer
from placer.model.module import Module, Split, StoredTensor
from placer.model.quantization import Quantization
from placer.model.storage import tensor_parameters

TOP_K_FIELDS = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k")
_NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings")
_OTHER_ATTENTION = (
    "attention_chunk_size", "attn_type_list", "compress_ratios", "full_attention_interval", "hc_mult",
    "hybrid_layer_pattern", "index_head_dim", "index_topk", "kv_lora_rank", "linear_attn_config",
    "linear_num_value_heads", "mamba_d_state", "mamba_expand", "num_attention_groups",
    "sparse_attention_config", "ssm_state_size", "swa_num_key_value_heads", "use_cla",
)  # fmt: skip
"""Fields of attention that caches something else than keys and values of every token."""

_EXPERT = re.compile(
    r"(?:(?:model|language_model|transformer|backbone)\.)*layers\.(\d{1,9})\.(.*?experts)\.(?:(\d{1,9})\.)?"
    r"([A-Za-z0-9_]+)(?:\.[A-Za-z0-9_]+)?"
)
_IN_LAYER = re.compile(r"(?:(?:model|language_model|transformer|backbone)\.)*layers\.(\d{1,9})\.(.+)")
_PROJECTION = re.compile(
    r"(?:.*\.)?(q_proj|k_proj|v_proj|qkv_proj|query_key_value|o_proj|dense|wo|wq|wk|wv|out_proj)\.[^.]+"
)
_KINDS = {"wq": "q_proj", "wk": "k_proj", "wv": "v_proj", "wo": "o_proj"}
_KINDS |= {"dense": "o_proj", "out_proj": "o_proj", "query_key_value": "qkv_proj"}
_ATTENTION = re.compile(r"(?:^|\.)(?:self_attn|self_attention|attention|attn|mixer)\.")
_CUT = {"q_proj": Split.OUTPUT, "k_proj": Split.KV_HEADS, "v_proj": Split.KV_HEADS}
_CUT |= {"qkv_proj": Split.PACKED_HEADS, "o_proj": Split.INPUT}
_MLP_INPUTS = re.compile(r"(?:.*\.)?(?:gate_proj|up_proj|gate_up_proj|w1|w3)\.[^.]+")
_MLP_OUTPUTS = re.compile(r"(?:.*\.)?(?:down_proj|w2)\.[^.]+")
_WEIGHT_ENDS = (".weight", ".weight_packed", ".qweight")
_SHOWN = 4
_MAX_OTHERS = 50_000


@dataclass
class _Seen:
    """What the names and shapes of a checkpoint show."""

    layer_experts: dict[int, int] = field(default_factory=dict)
    places: Counter[str] = field(default_factory=Counter)
    matrices: dict[str, None] = field(default_factory=dict)
    first_expert: list[StoredTensor] = field(default_factory=list)
    fused: bool = False
    others: list[StoredTensor] = field(default_factory=list)


def observed_blueprint(
    config: Config, quantization: Quantization, headers: Sequence[StoredTensor]
) -> Blueprint:
    """The shape of a model of an unknown family, from its headers and the fields that all families share.

    Raises
    ------
    BadInputError
        When no tensor looks like an expert, fields are missing (all are named), or what attention caches or
        which layers there are cannot be known.
    """
    seen = _observe(headers)
    if not seen.layer_experts:
        raise BadInputError(
            f"{config.path}: no tensor of the checkpoint looks like a routed expert",
            "give a mixture-of-experts model, or add its family to placer/model/families.py",
        )
    _refuse_unknowable(config, seen)
    counts = _counts(config, quantization, seen)
    heads = _heads(config)
    _check_caches(config, counts, heads, seen.others)
    attention = GroupedQuery(HeadFields(derived=True))
    family = Family(
        model_types=(config.text("model_type", default=""),),
        architectures=(config.architecture or "unknown",),
        experts_field=EXPERT_COUNT_FIELDS,
        layer_rule=every_layer,
        attention=uniform(attention),
        router=Router("gate"),
        experts=Experts(seen.places.most_common(1)[0][0], _matrices(config, seen)),
    )
    width = heads.key + heads.value
    return Blueprint(
        family=family,
        quantization=quantization,
        counts=counts,
        cache=(CacheGroup(counts.num_layers, heads.kv, 2 * width, width),),
        states=(),
        modules=tuple(_modules(seen.others, counts, heads)),
        assumed=_assumptions(family),
    )


def _assumptions(family: Family) -> str:
    return (
        f"no entry for {family.model_types[0] or family.architectures[0]}: experts, MoE layers and bytes are "
        "as the headers have them; attention is taken to cache the keys and values of every token in every "
        "layer, and what names do not tell is counted whole on every GPU"
    )


def _observe(headers: Sequence[StoredTensor]) -> _Seen:
    seen = _Seen()
    for tensor in headers:
        match = _EXPERT.fullmatch(tensor.name)
        if match is None or "shared" in match[2]:
            seen.others.append(tensor)
            if len(seen.others) > _MAX_OTHERS:
                raise BadInputError(
                    f"more than {_MAX_OTHERS:,} tensors of the checkpoint are no experts of a layer",
                    "add the model's family to placer/model/families.py",
                )
            continue
        layer, place, number, matrix = int(match[1]), match[2], match[3], match[4]
        seen.places[place] += 1
        seen.matrices[matrix] = None
        if number is None:
            seen.fused = True
            held = tensor.shape[0] if tensor.shape else 0
        else:
            held = int(number) + 1
        seen.layer_experts[layer] = max(held, seen.layer_experts.get(layer, 0))
        if layer == next(iter(seen.layer_experts)) and number in (None, "0"):
            seen.first_expert.append(tensor)
    return seen


def _refuse_unknowable(config: Config, seen: _Seen) -> None:
    missing = [name for name in _NEEDED if not config.has(name)]
    if not any(map(config.has, TOP_K_FIELDS)):
        missing.append(" or ".join(TOP_K_FIELDS))
    if missing:
        raise BadInputError(
            f"{config.path} lacks {', '.join(missing)}, and no family says where else to look",
            "give the config.json that came with the checkpoint",
        )
    other = [name for name in _OTHER_ATTENTION if config.fields.get(name)]
    if config.has("layer_types") and any(kind != "full_attention" for kind in config.items("layer_types")):
        other.append("layer_types")
    if other:
        raise BadInputError(
            f"{config.path}: what {config.text('model_type', default='the model')!r} caches cannot be known: "
            f"no rule for {', '.join(other)}",
            "add its family to placer/model/families.py",
        )
    if len(seen.places) > 1:
        raise BadInputError(
            f"{config.path}: experts lie at {' and at '.join(sorted(seen.places)[:_SHOWN])}",
            "add the model's family to placer/model/families.py",
        )


def _counts(config: Config, quantization: Quantization, seen: _Seen) -> Counts:
    num_layers = config.count("num_hidden_layers", most=MAX_LAYERS)
    hidden = config.count("hidden_size")
    moe_layers = tuple(sorted(layer for layer in seen.layer_experts if layer < num_layers))
    sizes = {seen.layer_experts[layer] for layer in moe_layers}
    if len(sizes) != 1:
        raise BadInputError(
            f"{config.path}: MoE layers hold {' and '.join(map(str, sorted(sizes))) or 'no'} experts",
            "give a model whose MoE layers are alike",
        )
    experts = sizes.pop()
    stated = [config.count(name, most=MAX_EXPERTS) for name in EXPERT_COUNT_FIELDS if config.has(name)]
    if any(number != experts for number in stated):
        raise BadInputError(
            f"{config.path} counts {stated[0]} experts, the checkpoint holds {experts} in a layer",
            "keep config.json and weights of the same model together",
        )
    top_k_field = next(name for name in TOP_K_FIELDS if config.has(name))
    top_k = config.alike(top_k_field, most=experts)
    shared = [t for t in seen.others if "shared" in t.name and _MLP_INPUTS.fullmatch(t.name)]
    return Counts(
        num_layers=num_layers,
        moe_layers=moe_layers,
        mtp_layers=0,
        experts=experts,
        top_k=top_k,
        hidden_size=hidden,
        expert_hidden_size=hidden,
        expert_intermediate_size=_expert_width(config, quantization, seen, hidden, experts),
        shared_experts=1 if shared else 0,
        shared_intermediate_size=max((_rows(t) for t in shared), default=0),
        dense_intermediate_size=config.count("intermediate_size", default=0, least=0)
        if len(moe_layers) < num_layers
        else 0,
        vocab_size=config.count("vocab_size", most=MAX_VOCABULARY),
        max_context_tokens=config.count("max_position_embeddings", most=MAX_TOKENS),
        query_heads=config.count("num_attention_heads"),
        kv_heads=_heads(config).kv,
    )


def _expert_width(config: Config, quantization: Quantization, seen: _Seen, hidden: int, experts: int) -> int:
    """I by the parameters of the first expert, three matrices of H·I each."""
    form = quantization.format
    bits = packed_format(form).bits if form.startswith(("int", "gptq", "awq")) else 4
    share = experts if seen.fused else 1
    parameters = sum(tensor_parameters(tensor, bits) for tensor in seen.first_expert)
    width, rest = divmod(parameters, 3 * hidden * share)
    if rest or not width:
        raise BadInputError(
            f"{config.path}: an expert of {parameters // share:,} parameters is not three matrices of "
            f"{hidden:,} by one width ({', '.join(list(seen.matrices)[:_SHOWN])})",
            "add the model's family to placer/model/families.py",
        )
    return width


def _heads(config: Config) -> Heads:
    if not config.has("num_key_value_heads"):
        query = config.count("num_attention_heads")
        key = HeadFields(kv=("num_attention_heads",), derived=True).read(config).key
        return Heads(query, query, key, key)
    return HeadFields(derived=True).read(config)


def _check_caches(config: Config, counts: Counts, heads: Heads, others: Iterable[StoredTensor]) -> None:
    """Every layer must hold key and value projections of the width that the heads give."""
    rows: dict[int, dict[str, int]] = {layer: {} for layer in range(counts.num_layers)}
    for tensor in others:
        inside = _IN_LAYER.fullmatch(tensor.name)
        if inside is None or int(inside[1]) not in rows or not tensor.name.endswith(_WEIGHT_ENDS):
            continue
        kind = _projection(inside[2])
        if kind is not None and len(tensor.shape) == 2:
            rows[int(inside[1])][kind] = _rows(tensor)
    kv = heads.kv * heads.key
    packed = (heads.query + 2 * heads.kv) * heads.key
    wrong = [
        layer
        for layer, held in rows.items()
        if not (held.get("k_proj") == held.get("v_proj") == kv or held.get("qkv_proj") == packed)
    ]
    if wrong:
        listed = ", ".join(map(str, wrong[:_SHOWN])) + (", …" if len(wrong) > _SHOWN else "")
        raise BadInputError(
            f"{config.path}: what layers {listed} cache cannot be known: they hold no key and value "
            f"projections of num_key_value_heads {heads.kv} times head_dim {heads.key}",
            "add the model's family to placer/model/families.py",
        )


def _projection(name: str) -> str | None:
    if _ATTENTION.search(name) is None:
        return None
    match = _PROJECTION.fullmatch(name)
    return None if match is None else _KINDS.get(match[1], match[1])


def _rows(tensor: StoredTensor) -> int:
    # GPTQ and AWQ store matrices with the outputs along the second axis.
    return tensor.shape[-1] if tensor.name.endswith(".qweight") else tensor.shape[0] if tensor.shape else 0


def _matrices(config: Config, seen: _Seen) -> tuple[str, str, str]:
    """Names of gate, up and down; only their number matters where experts are fused."""
    known = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))
    found = next((names for names in known if set(names) <= set(seen.matrices)), None)
    if found is not None:
        return found
    if seen.fused:
        return known[0]
    raise BadInputError(
        f"{config.path}: experts hold {', '.join(list(seen.matrices)[:_SHOWN])}, not gate, up and down",
        "add the model's family to placer/model/families.py",
    )


def _modules(others: Iterable[StoredTensor], counts: Counts, heads: Heads) -> Iterable[Module]:
    """A module for every tensor outside the routed experts, classed by its name."""
    moe = set(counts.moe_layers)
    for tensor in others:
        weight_class, split = _class_of(tensor, counts, moe)
        yield Module(
            canonical_name(tensor.name),
            weight_class,
            tensor.shape,
            split,
            heads=(heads.query, heads.kv),
            dtype=tensor.dtype,
        )


def _class_of(tensor: StoredTensor, counts: Counts, moe: set[int]) -> tuple[str, Split]:
    name = tensor.name
    inside = _IN_LAYER.fullmatch(name)
    if name.startswith(("mtp.", "model.mtp.")) or (inside and int(inside[1]) >= counts.num_layers):
        return "mtp", Split.REPLICATED
    if tensor.shape[:1] == (counts.vocab_size,) and len(tensor.shape) == 2:
        return "embedding", Split.VOCAB
    if inside is None:
        return ("norms" if "norm" in name else "other"), Split.REPLICATED
    layer, rest = int(inside[1]), inside[2]
    if "norm" in rest:
        return "norms", Split.REPLICATED
    if _ATTENTION.search(rest):
        kind = _projection(rest)
        return "attention", _CUT[kind] if kind is not None else Split.REPLICATED
    if tensor.shape[:1] == (counts.experts,) and layer in moe:
        return "router", Split.REPLICATED
    split = Split.OUTPUT if _MLP_INPUTS.fullmatch(rest) else Split.REPLICATED
    split = Split.INPUT if _MLP_OUTPUTS.fullmatch(rest) else split
    if "shared" in rest:
        return "shared_experts", split
    return ("other" if layer in moe else "dense"), split
