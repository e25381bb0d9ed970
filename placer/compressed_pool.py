"""SGLang's pools of DeepSeek-V4: a window of tokens, compressed entries beyond it, rings of the compressors.

Source: DSv4MemoryCalculator in sglang/srt/model_executor/memory_profiler.py and DeepSeekV4TokenToKVPool in
mem_cache/deepseekv4_memory_pool.py, of GPUs that know FP8 (compute capability 8.9 and later).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placer.pool import Pool

PAGE_TOKENS = 256
_ALIGNMENT_BYTES = 576
_FLOAT32_BYTES = 4


@dataclass(frozen=True)
class CompressedPools:
    """What the pools are made of.

    Attributes
    ----------
    nope, rope, index
        Widths of a cached entry without and with positions, and of an indexer's key.
    ratios
        Tokens per compressed entry by layer (0: only the window); entries beyond the last layer are MTP's.
    num_layers
        Layers of the model, without MTP.
    window
        Tokens of the window.
    ratio
        ``--swa-full-tokens-ratio``: tokens of the window's pool for every token of context.
    speculative
        Whether tokens are drafted, which doubles the rings.
    """

    nope: int
    rope: int
    index: int
    ratios: tuple[int, ...]
    num_layers: int
    window: int
    ratio: float
    speculative: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, Any], *, ratio: float, speculative: bool) -> "CompressedPools":
        """The pools of the model with these fields of config.json."""
        rope = int(fields["qk_rope_head_dim"])
        return cls(
            nope=int(fields["head_dim"]) - rope,
            rope=rope,
            index=int(fields["index_head_dim"]),
            ratios=tuple(fields["compress_ratios"]),
            num_layers=int(fields["num_hidden_layers"]),
            window=int(fields["sliding_window"]),
            ratio=ratio,
            speculative=speculative,
        )

    @property
    def full_token_bytes(self) -> float:
        """Bytes that SGLang expects a token of context to take, which it divides its memory by."""
        entry, key = self.nope + 2 * self.rope + 8, self.index + self.index // 128 * 4
        head = self.nope + self.rope
        sparse, heavy = self.ratios.count(4), self.ratios.count(128)
        sparse_ring = self._ring(4) / self.window
        heavy_ring = self._ring(128) / self.window
        # The order of terms and factors is the runtime's: the quotient is cut to a whole number.
        return (
            self.ratio * entry * len(self.ratios)
            + 1 / 4 * entry * sparse
            + 1 / 128 * entry * heavy
            + 1 / 4 * key * sparse
            + self.ratio * sparse_ring * (4 * head * _FLOAT32_BYTES) * sparse
            + self.ratio * heavy_ring * (2 * head * _FLOAT32_BYTES) * heavy
            + self.ratio * sparse_ring * (4 * self.index * _FLOAT32_BYTES) * sparse
        )

    def tokens(self, max_total_tokens: int) -> tuple[int, int]:
        """Tokens of context and of the window's pool that SGLang makes of ``--max-total-tokens``."""
        flag = max_total_tokens // PAGE_TOKENS * PAGE_TOKENS
        each = self.full_token_bytes
        full = int(flag * each / each) // PAGE_TOKENS * PAGE_TOKENS
        return full, int(full * self.ratio) // PAGE_TOKENS * PAGE_TOKENS

    def least_flag(self, tokens: int) -> int:
        """The least ``--max-total-tokens`` that holds ``tokens``; the runtime's division may lose a page."""
        flag = max(1, tokens // PAGE_TOKENS) * PAGE_TOKENS
        while self.tokens(flag)[0] < tokens:
            flag += PAGE_TOKENS
        return flag

    def claimed_bytes(self, max_total_tokens: int) -> int:
        """Memory that SGLang must find free to grant ``--max-total-tokens``; a draft layer takes its part."""
        claimed = self.tokens(max_total_tokens)[0] * self.full_token_bytes
        if self.speculative:
            claimed *= (len(self.ratios) + 1) / len(self.ratios)
        return int(claimed) + 1

    def pools(self, max_total_tokens: int) -> tuple[Pool, ...]:
        """Every pool: pages padded to 576 bytes, a page more that padded tokens write to, and rings."""
        full, windowed = self.tokens(max_total_tokens)
        sparse, heavy = self.ratios.count(4), self.ratios.count(128)
        head, key = self.nope + self.rope, self.index + self.index // 128 * 4
        sparse_page, heavy_page = PAGE_TOKENS // 4, PAGE_TOKENS // 128
        pools = (
            self._paged("window", windowed, windowed, PAGE_TOKENS, self.num_layers),
            self._paged("entries_of_4", full, full // 4, sparse_page, sparse),
            self._paged("entries_of_128", full, full // 128, heavy_page, heavy),
            Pool("index_keys", full, _pages(full // 4, sparse_page), sparse_page * key * sparse, sparse),
            self._rings("rings_of_4", windowed, 4, 4 * (head + self.index), sparse),
            self._rings("rings_of_128", windowed, 128, 2 * head, heavy),
        )
        return tuple(pool for pool in pools if pool.slot_bytes)

    def draft_bytes(self, max_total_tokens: int) -> int:
        """The cache of one draft layer, which keeps the window alone."""
        windowed = self.tokens(max_total_tokens)[1]
        return self._paged("draft", windowed, windowed, PAGE_TOKENS, 1).total_bytes

    def _paged(self, name: str, tokens: int, entries: int, page: int, layers: int) -> Pool:
        plain = page * (self.nope + 2 * self.rope + 8)
        padded = -(-plain // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        return Pool(name, tokens, _pages(entries, page), padded * layers, layers)

    def _rings(self, name: str, windowed: int, ratio: int, values: int, layers: int) -> Pool:
        entries = windowed // self.window * self._ring(ratio) + self._ring(ratio) + 1
        slots = -(-entries // ratio) * ratio
        return Pool(name, windowed, slots, values * _FLOAT32_BYTES * layers, layers)

    def _ring(self, ratio: int) -> int:
        """Entries of a compressor's ring (get_compress_state_ring_size)."""
        return (8 if ratio == 4 else 128) * (2 if self.speculative else 1)


def _pages(entries: int, page: int) -> int:
    return (entries + page + 1) // page
