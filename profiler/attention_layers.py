"""What attention computes in every layer: head counts and widths, and how many cached entries a token sees."""

from dataclasses import dataclass
from pathlib import Path

from placer.model.config import Config
from placer.model.kv import CacheGroup
from placer.model.spec import ModelSpec


@dataclass(frozen=True)
class AttentionLayers:
    """Layers that attend alike.

    Attributes
    ----------
    kind
        "grouped" (query heads share KV heads), "latent" (all share one latent vector), or "other": an index
        branch, or entries that are compressed, which no kernel here times.
    layers
        How many.
    query_heads, kv_heads
        Of the whole model; ``kv_heads`` is None where every GPU holds the one latent vector.
    key_width, value_width
        Width of a head's key and value where a chunk of a prompt attends. Their mean where only the sum is known.
    cached_width, cached_value_width
        The same where a token decodes: a latent vector serves every head as key, and its first part as value.
    window_tokens, tokens_per_entry
        As in `CacheGroup`.
    selected_entries
        Entries that an indexer lets a token attend to; None for all.
    divided
        Whether tensor parallelism divides the query heads.
    bf16_bytes, fp8_bytes
        Of one cached entry and KV head; 0 where another entry of the same group counts them.
    """

    kind: str
    layers: int
    query_heads: int
    kv_heads: int | None
    key_width: int
    value_width: int
    cached_width: int
    cached_value_width: int
    window_tokens: int | None
    tokens_per_entry: int
    selected_entries: int | None
    divided: bool
    bf16_bytes: int
    fp8_bytes: int

    def entries(self, context_tokens: float) -> float:
        """Cached entries that a token attends to when it sees ``context_tokens`` tokens."""
        seen = context_tokens if self.window_tokens is None else min(context_tokens, self.window_tokens)
        entries = seen / self.tokens_per_entry
        return entries if self.selected_entries is None else min(entries, self.selected_entries)

    def query_heads_per_gpu(self, tp: int) -> int:
        """Query heads of one of ``tp`` GPUs."""
        return -(-self.query_heads // tp) if self.divided else self.query_heads

    def kv_heads_per_gpu(self, tp: int) -> int:
        """KV heads (or latent vectors) of one of ``tp`` GPUs."""
        return 1 if self.kv_heads is None else max(1, self.kv_heads // tp)

    def pair_flops(self, tp: int) -> int:
        """Operations of one token and one entry on one GPU, in all layers: 2·heads·(key + value)."""
        return 2 * self.layers * self.query_heads_per_gpu(tp) * (self.key_width + self.value_width)


def attention_layers(model: ModelSpec) -> tuple[AttentionLayers, ...]:
    """The attention of ``model``, from its cache groups and config.json; recurrent layers are left out."""
    fields = _Fields(model)
    found: list[AttentionLayers] = []
    for group in model.cache:
        found += _grouped(model, group) if group.kv_heads is not None else _shared(model, group, fields)
    return tuple(found)


class _Fields:
    """Whole numbers of the language model's config; 0 where it has no such field."""

    def __init__(self, model: ModelSpec) -> None:
        self._fields = Config(Path("config.json"), model.config_sha256, model.config).fields

    def __getitem__(self, name: str) -> int:
        value = self._fields.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _grouped(model: ModelSpec, group: CacheGroup) -> list[AttentionLayers]:
    width = group.bf16_bytes // 4  # A key and a value of two bytes each.
    return [_layers("grouped", group, model.query_heads, (width,) * 4)]


def _shared(model: ModelSpec, group: CacheGroup, fields: _Fields) -> list[AttentionLayers]:
    index = fields["index_head_dim"]
    scoring = _layers("other", group, fields["index_n_heads"] or 1, (index, 0, index, 0), divided=False)
    if fields["kv_lora_rank"]:
        nope, rope = fields["qk_nope_head_dim"], fields["qk_rope_head_dim"]
        latent = fields["kv_lora_rank"]
        widths = (nope + rope, fields["v_head_dim"], latent + rope, latent)
        core = _layers("latent", group, model.query_heads, widths, selected=fields["index_topk"] or None)
        return [core, scoring] if index else [core]
    if index and group.bf16_bytes == 2 * index:
        return [scoring]
    width = fields["head_dim"] if group.tokens_per_entry > 1 or group.window_tokens else group.bf16_bytes // 2
    selected = fields["index_topk"] if index and group.tokens_per_entry == 4 else 0
    heads = model.query_heads if width == fields["head_dim"] else 1
    return [_layers("other", group, heads, (width,) * 4, selected=selected or None)]


def _layers(
    kind: str,
    group: CacheGroup,
    query_heads: int,
    widths: tuple[int, int, int, int],
    *,
    selected: int | None = None,
    divided: bool = True,
) -> AttentionLayers:
    key, value, cached, cached_value = widths
    # The index key of a latent cache lies in the same entry as the latent, which counts its bytes.
    counted = not (value == 0 and group.tokens_per_entry == 1)
    return AttentionLayers(
        kind=kind,
        layers=group.layers,
        query_heads=query_heads,
        kv_heads=group.kv_heads,
        key_width=key,
        value_width=value,
        cached_width=cached,
        cached_value_width=cached_value,
        window_tokens=group.window_tokens,
        tokens_per_entry=group.tokens_per_entry,
        selected_entries=selected,
        divided=divided,
        bf16_bytes=group.bf16_bytes if counted else 0,
        fp8_bytes=group.fp8_bytes if counted else 0,
    )
