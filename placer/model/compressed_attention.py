"""DeepSeek-V4's attention: a window of tokens, and beyond it one entry for every 4 or 128 tokens."""

from dataclasses import dataclass

from placer.model.config import MAX_TOKENS, Config
from placer.model.kv import CacheGroup, RequestState
from placer.model.module import Module, Split

COMPRESSED_KINDS = {0: "full", 4: "sparse", 128: "heavy"}
"""Names of the kinds by their entry of ``compress_ratios``; with 0 there is only the window."""
_RING_ENTRIES = {4: 8, 128: 128}
"""Entries of a compressor's ring (sglang/srt/mem_cache/deepseekv4_memory_pool.py)."""


def compressed_kinds(config: Config, num_layers: int) -> tuple[str, ...]:
    """The kind of every layer by ``compress_ratios``, and of the MTP layers where the list goes on.

    SGLang keeps the window of every entry, drafting or not (sglang/srt/model_executor/memory_profiler.py).
    """
    ratios = config.items("compress_ratios")
    if len(ratios) < num_layers or any(
        isinstance(ratio, bool) or not isinstance(ratio, int) or ratio not in COMPRESSED_KINDS
        for ratio in ratios
    ):
        raise config.error("compress_ratios", ratios, f"0, 4 or 128 for each of the {num_layers} layers")
    return tuple(COMPRESSED_KINDS[ratio] for ratio in ratios)


@dataclass(frozen=True)
class CompressedAttention:
    """One latent head for keys and values, whole on every GPU, with low-rank queries and grouped output.

    Attributes
    ----------
    ratio
        Tokens of one compressed entry; 0 where there is only the window.
    """

    ratio: int

    def modules(self, config: Config, layer: str) -> list[Module]:
        """Queries, the latent, the grouped output, sinks, and the compressor with its indexer.

        Source: sglang/srt/models/deepseek_v4.py, transformers/models/deepseek_v4/modeling_deepseek_v4.py.
        """
        hidden, heads, head = self._widths(config)
        rank, groups = config.count("q_lora_rank"), config.count("o_groups")
        inner = groups * config.count("o_lora_rank")
        at = f"{layer}.attn"
        modules = [
            Module(f"{at}.wq_a", "attention", (rank, hidden), linear=True),
            Module(f"{at}.wq_b", "attention", (heads * head, rank), Split.OUTPUT, linear=True),
            Module(f"{at}.wkv", "attention", (head, hidden), linear=True),
            Module(f"{at}.wo_a", "attention", (inner, heads * head // groups), Split.OUTPUT, linear=True),
            Module(f"{at}.wo_b", "attention", (hidden, inner), Split.INPUT, linear=True),
            Module(at, "attention", (heads,), dtype="F32", parameter="attn_sink"),
            Module(f"{at}.q_norm", "norms", (rank,)),
            Module(f"{at}.kv_norm", "norms", (head,)),
        ]
        if self.ratio:
            modules += self._compressor(f"{at}.compressor", hidden, head)
        if self.ratio == 4:
            modules += self._indexer(config, f"{at}.indexer", hidden, rank)
        config.ignore(("index_topk", "index_n_heads", "index_head_dim", "qk_nope_head_dim", "v_head_dim"))
        return modules

    def _compressor(self, at: str, hidden: int, head: int) -> list[Module]:
        # Windows of 4 overlap, so their compressor has two halves; those of 128 do not.
        width = 2 * head if self.ratio == 4 else head
        return [
            Module(f"{at}.wkv", "attention", (width, hidden)),
            Module(f"{at}.wgate", "attention", (width, hidden)),
            Module(at, "attention", (self.ratio, width), dtype="F32", parameter="ape"),
            Module(f"{at}.norm", "norms", (head,)),
        ]

    def _indexer(self, config: Config, at: str, hidden: int, rank: int) -> list[Module]:
        heads, width = config.count("index_n_heads"), config.count("index_head_dim")
        return [
            Module(f"{at}.wq_b", "attention", (heads * width, rank), linear=True),
            Module(f"{at}.weights_proj", "attention", (heads, hidden)),
            *self._compressor(f"{at}.compressor", hidden, width),
        ]

    def runtime_copies(self, config: Config, layer: str) -> list[Module]:
        """None."""
        del config, layer
        return []

    def cache(self, config: Config, layers: int) -> tuple[CacheGroup, ...]:
        """The window, the compressed entries, and in layers of ratio 4 an index key per entry.

        FP8 entries keep the rotary part in bf16 and 8 bytes of scales. Windows take that layout on every GPU
        that computes in FP8, whatever the KV dtype; bf16 entries are those of older GPUs
        (sglang/srt/model_executor/memory_profiler.py, DSv4MemoryCalculator).
        """
        _, _, head = self._widths(config)
        rope = config.count("qk_rope_head_dim", most=head)
        fp8 = head - rope + 2 * rope + 8
        window = config.count("sliding_window", most=MAX_TOKENS)
        groups = [CacheGroup(layers, None, fp8, fp8, window_tokens=window)]
        if self.ratio:
            groups.append(CacheGroup(layers, None, 2 * head, fp8, tokens_per_entry=self.ratio))
        if self.ratio == 4:
            index = config.count("index_head_dim")
            key = index + index // 128 * 4
            groups.append(CacheGroup(layers, None, 2 * index, key, tokens_per_entry=self.ratio))
        return tuple(groups)

    def states(self, config: Config, layers: int) -> tuple[RequestState, ...]:
        """The compressors' rings of float32 keys and scores, one per request.

        Source: as `cache`; a ring of 8 entries for ratio 4, of 128 for ratio 128.
        """
        if not self.ratio:
            return ()
        width = self._widths(config)[2]
        halves = 2 if self.ratio == 4 else 1
        if self.ratio == 4:
            width += config.count("index_head_dim")
        ring = _RING_ENTRIES[self.ratio] * 2 * halves * width * 4
        return (RequestState(layers, ring, False),)

    def kv_heads(self, config: Config) -> None:
        """None: the latent is not divided."""
        config.ignore(("num_key_value_heads",))

    def _widths(self, config: Config) -> tuple[int, int, int]:
        heads, head = config.count("num_attention_heads"), config.count("head_dim")
        groups = config.count("o_groups")
        if heads * head % groups:
            raise config.error("o_groups", groups, f"a divisor of {heads} heads of {head}")
        return config.count("hidden_size"), heads, head
