"""MiniMax-M3's attention: grouped-query, with an index branch that selects blocks of tokens."""

from dataclasses import dataclass, field

from placer.model.config import Config
from placer.model.grouped_query import GroupedQuery
from placer.model.kv import CacheGroup, RequestState
from placer.model.module import Module, Split

_SECTION = "sparse_attention_config"


def block_sparse_kinds(config: Config, num_layers: int) -> tuple[str, ...]:
    """``sparse`` where ``sparse_attention_freq`` is 1, and ``valued`` where the index branch has values too.

    Source: sglang/srt/configs/model_config.py, get_minimax_sparse_layer_ids.
    """
    if not config.has(_SECTION):
        return ("full",) * num_layers
    section = config.section(_SECTION)
    if not section.flag("use_sparse_attention", default=True):
        return ("full",) * num_layers
    sparse = section.items("sparse_attention_freq")
    valueless = section.items("sparse_disable_index_value") or [0] * num_layers
    for name, entries in (("sparse_attention_freq", sparse), ("sparse_disable_index_value", valueless)):
        if len(entries) != num_layers or any(entry not in (0, 1) for entry in entries):
            raise section.error(name, entries, f"one 0 or 1 for each of the {num_layers} layers")
    return tuple(
        "full" if not of else "sparse" if without else "valued"
        for of, without in zip(sparse, valueless, strict=True)
    )


@dataclass(frozen=True)
class BlockSparseAttention:
    """Grouped-query attention beside an index branch: some query heads and one key head.

    Attributes
    ----------
    valued
        Whether the index branch has values and an output of its own.
    main
        The attention itself.
    """

    valued: bool
    main: GroupedQuery = field(
        default_factory=lambda: GroupedQuery(norm="head", norm_field="use_qk_norm", norm_unless_stated=True)
    )

    def modules(self, config: Config, layer: str) -> list[Module]:
        """The attention's own, and the projections and norms of the index branch.

        Source: sglang/srt/models/minimax_m3.py, MiniMaxM3Attention.
        """
        hidden, (heads, width) = config.count("hidden_size"), self._index(config)
        at = f"{layer}.self_attn.index"
        branch = [
            Module(
                f"{at}_q_proj", "attention", (heads * width, hidden), Split.KV_HEADS, linear=True,
                heads=(heads, heads),
            ),
            Module(f"{at}_k_proj", "attention", (width, hidden), linear=True),
            Module(f"{at}_q_norm", "norms", (width,)),
            Module(f"{at}_k_norm", "norms", (width,)),
        ]  # fmt: skip
        if self.valued:
            branch.append(Module(f"{at}_v_proj", "attention", (width, hidden), linear=True))
            branch.append(
                Module(f"{at}_o_proj", "attention", (hidden, heads * width), Split.INPUT, linear=True)
            )
        return self.main.modules(config, layer) + branch

    def runtime_copies(self, config: Config, layer: str) -> list[Module]:
        """None."""
        del config, layer
        return []

    def cache(self, config: Config, layers: int) -> tuple[CacheGroup, ...]:
        """Keys and values, and the index branch's key (and value) in bf16 whatever the KV dtype.

        Source: sglang/srt/mem_cache/memory_pool.py, MiniMaxSparseKVPool.
        """
        index = self._index(config)[1] * 2 * (2 if self.valued else 1)
        return (*self.main.cache(config, layers), CacheGroup(layers, None, index, index))

    def states(self, config: Config, layers: int) -> tuple[RequestState, ...]:
        """None."""
        del config, layers
        return ()

    def kv_heads(self, config: Config) -> int:
        """KV heads of the attention itself."""
        return self.main.kv_heads(config)

    def _index(self, config: Config) -> tuple[int, int]:
        section = config.section(_SECTION)
        return section.count("sparse_num_index_heads"), section.count("sparse_index_dim")
